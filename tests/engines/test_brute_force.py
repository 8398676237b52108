"""All engines against brute force, and against each other: no bound above any decision, no decision below the optimum."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from allocator.domain import Decision, Snapshot
from allocator.engine import ENGINES, Session, allocate
from allocator.entitlement import Entitlement, entitle
from allocator.verify import verify
from tests.engines.brute_force import TooLargeError, best_decision
from tests.engines.seeds import FUZZ, LIMIT, chunks
from tests.engines.tiny import tiny_snapshot

PROVEN = 0.97
"""Of the epochs are proven optimal. In the others unallocated work so large has to give way to entitled work that much idles:
no engine states when, the last pass mends the answer at a price, and the bound is the one of before."""

BEST = 0.99
"""Of the epochs are decided as well as can be, proven or not."""

GREEDY_BEST = 0.85
"""Of the epochs are decided as well as can be by greedy alone."""

MOST_TOO_LARGE = 0.02
"""Of the epochs have more decisions than brute force looks at; there the engines only check each other."""


@dataclass(frozen=True)
class Case:
    """One epoch, what every engine makes of it, and the least score of all decisions (None: too many to look at)."""

    seed: int
    snapshot: Snapshot
    entitlement: Entitlement
    decisions: dict[str, Decision]
    best: int | None


def solved(seed: int, make: Callable[[int], Snapshot] = tiny_snapshot, *, enumerate_all: bool = True) -> Case:
    """Each engine decides by itself. What they share of a session is what does not change between two calls: nodes, budgets."""
    snapshot = make(seed)
    entitlement, session = entitle(snapshot), Session()
    try:
        best: int | None = best_decision(entitlement)[0] if enumerate_all else None
    except TooLargeError:
        best = None
    decisions = {name: allocate(snapshot, engine=name, time_limit=LIMIT, session=session) for name in ENGINES}
    return Case(seed, snapshot, entitlement, decisions, best)


@pytest.mark.parametrize("seeds", chunks(usual=500, long=10_000, size=1000 if FUZZ else 250))
def test_no_engine_errs(seeds: range) -> None:
    outcomes: Counter[str] = Counter()
    for seed in seeds:
        case = solved(seed)
        check_each(case)
        check_against_each_other(case)
        if case.best is None:
            outcomes["too large"] += 1
            continue
        check_against_the_optimum(case, case.best)
        outcomes["proven"] += case.decisions["portfolio"].solver.status == "optimal"
        for name, decision in case.decisions.items():
            outcomes[f"{name} best"] += decision.solver.objective == case.best
    known = len(seeds) - outcomes["too large"]
    assert outcomes["too large"] <= MOST_TOO_LARGE * len(seeds), outcomes
    assert outcomes["proven"] >= PROVEN * known, outcomes
    assert outcomes["portfolio best"] >= BEST * known, outcomes
    assert outcomes["greedy best"] >= GREEDY_BEST * known, outcomes


def check_each(case: Case) -> None:
    """Every decision keeps every rule, and is worth what it says to the unit."""
    for name, decision in case.decisions.items():
        verdict, solver = verify(case.snapshot, decision, case.entitlement), decision.solver
        assert [str(violation) for violation in verdict.violations] == [], (case.seed, name)
        assert verdict.score.total == solver.objective, (case.seed, name)
        assert verdict.score.as_dict() == dict(solver.terms), (case.seed, name)
        assert solver.notes == (), (case.seed, name)


def check_against_each_other(case: Case) -> None:
    """No engine proves that a decision of another is impossible."""
    for name, decision in case.decisions.items():
        bound = decision.solver.bound
        for other, answer in case.decisions.items():
            assert bound is None or bound <= answer.solver.objective, (case.seed, name, other)


def check_against_the_optimum(case: Case, best: int) -> None:
    """No decision is better than the best of all, no bound above it, and what is called optimal is as good."""
    for name, decision in case.decisions.items():
        solver = decision.solver
        assert solver.objective >= best, (case.seed, name)
        assert solver.bound is None or solver.bound <= best, (case.seed, name)
        assert solver.status != "optimal" or solver.objective == best, (case.seed, name)
