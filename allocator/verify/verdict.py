"""What the verifier says of a decision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from allocator.entitlement.costs import Score


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken rule: its name as in the list of hard constraints, whom it concerns, and what is wrong in plain words."""

    rule: str
    subject: str
    detail: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.subject}: {self.detail}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Every broken rule, in the order of the rules, and the score of the decision as recomputed."""

    violations: tuple[Violation, ...]
    score: Score

    @property
    def ok(self) -> bool:
        """True where no rule is broken."""
        return not self.violations

    @property
    def broken(self) -> tuple[str, ...]:
        """Names of the broken rules, each once, in the order of the rules."""
        return tuple(dict.fromkeys(violation.rule for violation in self.violations))

    def as_dict(self) -> dict[str, Any]:
        """The verdict as plain data; the score in GPU-seconds, like the objective of a decision."""
        return {
            "ok": self.ok,
            "violations": [{"rule": item.rule, "subject": item.subject, "detail": item.detail} for item in self.violations],
            "score": {
                "total": self.score.total / 1000,
                "terms": {name: value / 1000 for name, value in self.score.as_dict().items()},
            },
        }
