"""The one tree of errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class AllocatorError(Exception):
    """Base of every error that this package raises on purpose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Issue:
    """One problem of an input: where it is (a JSON path), what is wrong, and what would be valid."""

    path: str
    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}; {self.remedy}"


class SnapshotError(AllocatorError):
    """An input document is refused as a whole. Carries every issue found, not the first."""

    def __init__(self, issues: Sequence[Issue]) -> None:
        self.issues = tuple(issues)
        super().__init__("\n".join(str(issue) for issue in self.issues))


class OversizedError(SnapshotError):
    """A document is larger than its reader allows; its end was never looked at."""


class InfeasibleError(AllocatorError):
    """The compiled epoch admits no decision, not even keep: an inconsistent snapshot or a bug. Never hidden."""
