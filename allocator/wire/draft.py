"""A snapshot document while it is being checked: what could be read, and what was found wrong so far."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from allocator.domain import Issue, Rejection
from allocator.wire.snapshot_doc import SnapshotDoc


@dataclass(slots=True)
class Draft:
    """Mutable while the checks run.

    Attributes
    ----------
    doc
        The document without the elements that could not be read.
    issues
        Reasons to refuse the document as a whole.
    rejected, rejections
        Waiting workloads that are rejected by name, and what is wrong with them: told as well if the document is refused.
    positions
        By section, the index in the document of each element of `doc`; a section that was read completely is absent.
    unread
        By section, names or ids of elements that could not be read: they exist, so nothing that refers to them is unknown.
        An empty name stands for one whose own name could not be read: it may be any.
    cluster_known, budgets_known
        False where the cluster or the budget tree itself could not be read; nothing is compared with it then.
    """

    doc: SnapshotDoc
    issues: list[Issue] = field(default_factory=list)
    rejected: list[Rejection] = field(default_factory=list)
    rejections: list[Issue] = field(default_factory=list)
    positions: dict[str, Sequence[int]] = field(default_factory=dict)
    unread: dict[str, set[str]] = field(default_factory=dict)
    cluster_known: bool = True
    budgets_known: bool = True

    def path(self, section: str, row: int) -> str:
        """The JSON path of element `row` of a section of `doc`."""
        at = self.positions[section][row] if section in self.positions else row
        return f"$.{section}[{at}]"

    def refuse(self, path: str, problem: str, remedy: str) -> None:
        """Note a reason to refuse the document."""
        self.issues.append(Issue(path=path, problem=problem, remedy=remedy))

    def knows(self, section: str, name: str) -> bool:
        """True where the name belongs, or may belong, to an element that could not be read."""
        unread = self.unread.get(section, ())
        return name in unread or "" in unread


def workload_path(key: str) -> str:
    """Where a workload stands, whatever the order of the list: rejections must not depend on that order."""
    quoted = json.dumps(key, ensure_ascii=not key.isprintable())[1:-1].replace('\\"', '"').replace("'", "\\'")
    return f"$.workloads[?@.id=='{quoted}']"
