"""Change sets: what somebody wants to alter in the budgets, from when on, and why.

    { "author": "ana", "reason": "evaluation doubles", "effective"?: 1764430000,
      "changes": [ { "id": "pretrain", "share"?: 40, "share_by_pool"?: {"b200": 60, "h100": null}, "parent"?: "base" | null,
                     "name"?: .., "funds"?: false, "gpu_limit"?: 256 | null, "interactive_limit"?: 16 | null },
                   { "id": "eval", "add": true, "parent": "base", "share": 10, ... },
                   { "id": "old", "remove": true } ] }

A field that is left out stays as it is; null takes a limit, a name or the override of one pool away. All changes of a set take
effect together, so their order does not matter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from os import PathLike
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from allocator.domain import Issue, SnapshotError
from allocator.wire.decode import exact
from allocator.wire.scalars import Count, Instant, Name, Number
from allocator.wire.shapes import problems, show
from allocator.wire.source import loads, plain, read_bytes, refuse_syntax


class ChangeKind(StrEnum):
    """What happens to a vertex of the budget tree."""

    CHANGE = "change"
    ADD = "add"
    REMOVE = "remove"


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetChange:
    """One vertex: what happens to it, and the fields of an `Allocation` that are given.

    In `values`, `share_by_pool` maps pools to exact shares, or to None where the override goes.
    """

    id: str
    kind: ChangeKind
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeSet:
    """Changes that belong together. `effective` is in seconds since the epoch, None: at once."""

    author: str
    reason: str
    effective: int | None
    changes: tuple[BudgetChange, ...]


class ChangeDoc(Struct, forbid_unknown_fields=True, kw_only=True):
    """What happens to one vertex."""

    id: Name
    add: bool = False
    remove: bool = False
    parent: Annotated[Name | None, Meta(description="id of the parent, null at the top")] = None
    name: str | None = None
    share: Annotated[Number, Meta(description="relative to the siblings")] = 0
    share_by_pool: Annotated[dict[Name, Number | None], Meta(description="null: share counts again")] = {}
    funds: bool = True
    gpu_limit: Annotated[Count | None, Meta(description="null: no limit")] = None
    interactive_limit: Annotated[Count | None, Meta(description="null: no limit")] = None


class ChangeSetDoc(Struct, forbid_unknown_fields=True, kw_only=True):
    """Changes that belong together."""

    author: Annotated[Name, Meta(description="who asks for it")]
    reason: Annotated[Name, Meta(description="why, for those who read it later")]
    effective: Annotated[Instant | None, Meta(description="in seconds since the epoch; absent: at once")] = None
    changes: Annotated[list[ChangeDoc], Meta(min_length=1)]


def load_changes(source: str | PathLike[str] | bytes) -> ChangeSet:
    """Read a change set from a file, or from its bytes.

    Raises
    ------
    SnapshotError
        With every issue of the document, not the first.
    """
    return decode_changes(read_bytes(source))


def decode_changes(data: bytes) -> ChangeSet:
    """Decode a change set, plain or gzip-compressed. Raises `SnapshotError` with every issue."""
    raw = decode_raw(data)
    if issues := change_set_issues(raw, "$"):
        raise SnapshotError(issues)
    return change_set_of(raw)


def decode_raw(data: bytes) -> Any:
    """The JSON of a small document, plain or gzip-compressed. Raises `SnapshotError` where it is no JSON."""
    data = plain(data)
    try:
        msgspec.json.decode(data)  # stricter than the standard library, and says where
    except (msgspec.DecodeError, RecursionError) as error:
        refuse_syntax(data, error)
    return loads(data)


def change_set_issues(raw: Any, path: str) -> list[Issue]:
    """What is wrong with a change set that stands at `path`, whatever the budgets are."""
    issues = problems(raw, ChangeSetDoc, path)
    if not issues:
        issues = [
            issue for at, change in enumerate(raw["changes"]) for issue in _contradictions(change, f"{path}.changes[{at}]")
        ]
        issues += _repeated(raw["changes"], path)
    return issues


def change_set_of(raw: Mapping[str, Any]) -> ChangeSet:
    """A change set without issues as an object."""
    changes = tuple(_change(change) for change in raw["changes"])
    return ChangeSet(author=raw["author"], reason=raw["reason"], effective=raw.get("effective"), changes=changes)


def _contradictions(change: Mapping[str, Any], path: str) -> Iterator[Issue]:
    """What makes no sense whatever the budgets are."""
    kind, given = _kind(change), _values(change)
    if change.get("add") and change.get("remove"):
        yield Issue(path=path, problem="both add and remove", remedy="give one of them")
    elif kind is ChangeKind.REMOVE and given:
        yield Issue(path=path, problem=f"a removal that also sets {', '.join(given)}", remedy="give id and remove only")
    elif kind is ChangeKind.ADD:
        for field in ("parent", "share"):
            if field not in given:
                yield Issue(path=f"{path}.{field}", problem="a new allocation needs it", remedy=f"give {field}")
    elif kind is ChangeKind.CHANGE and not given:
        yield Issue(path=path, problem=f"nothing changes for {show(change['id'])}", remedy="give a field, add or remove")


def _repeated(changes: list[dict[str, Any]], path: str) -> Iterator[Issue]:
    first: dict[str, int] = {}
    for at, change in enumerate(changes):
        if change["id"] in first:
            problem = f"{show(change['id'])} is changed before, at {path}.changes[{first[change['id']]}]"
            yield Issue(path=f"{path}.changes[{at}].id", problem=problem, remedy="say once what happens to it")
        first.setdefault(change["id"], at)


def _kind(change: Mapping[str, Any]) -> ChangeKind:
    if change.get("add"):
        return ChangeKind.ADD
    return ChangeKind.REMOVE if change.get("remove") else ChangeKind.CHANGE


def _values(change: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in change.items() if key not in ("id", "add", "remove")}


def _change(change: Mapping[str, Any]) -> BudgetChange:
    values = _values(change)
    if "share" in values:
        values["share"] = exact(values["share"])
    if "share_by_pool" in values:
        shares = values["share_by_pool"].items()
        values["share_by_pool"] = {pool: None if share is None else exact(share) for pool, share in shares}
    return BudgetChange(id=change["id"], kind=_kind(change), values=values)
