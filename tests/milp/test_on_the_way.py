"""What the mixed-integer engine reports before it ends: answers with their exact value, and bounds that hold."""

from __future__ import annotations

from allocator.entitlement import entitle
from allocator.epoch import compile_epoch, value_of
from allocator.models.milp import solver
from allocator.models.protocol import EngineResult, Limits, Status
from tests.engines.seeds import LIMIT
from tests.engines.tiny import tiny_snapshot


def test_reports_are_exact_and_hold() -> None:
    heard = 0
    for seed in range(20):
        problem = compile_epoch(entitle(tiny_snapshot(seed)))
        told: list[EngineResult] = []
        best = solver.solve(problem, Limits(LIMIT), report=told.append)
        assert best.status is Status.OPTIMAL
        assert best.value is not None
        assert all(news.bound is None or news.bound <= best.value for news in told)
        assert all(news.solution is None or news.value == value_of(problem, news.solution) for news in told)
        heard += any(news.solution is not None for news in told)
    assert heard > 0
