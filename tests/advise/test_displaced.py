"""Who is worse off: the difference of two decisions, one effect for each workload."""

from __future__ import annotations

from dataclasses import replace

import pytest

from allocator.advise.model import Effect
from allocator.advise.trial import Laboratory
from allocator.domain import Decision, Reservation
from tests.builders import NOW, budget, decision, job, nodes, running, snapshot, start, stop

SNAP = snapshot(
    nodes(4),
    [budget("a"), budget("b")],
    [running("r", "a", {"n1": 1}), running("u", "a", {"n2": 1}, charged=False), job("w", "b")],
)
REQUEST = job("z", "b", submit_time=NOW)
RESERVED = Reservation(workload="w", pool="h100", domain=(), nodes=1, start=NOW + 60, eligible_since=NOW, bound=NOW + 900)

NOTHING = decision(SNAP)
STOPPED = decision(SNAP, stops=[stop("r", "z")])
MOVED = decision(SNAP, starts=[start("r", {"n3": 1})], stops=[stop("r", "z")])
STARTED = decision(SNAP, starts=[start("w", {"n3": 1})])
UNCHARGED = decision(SNAP, starts=[start("w", {"n3": 1}, charged=False)])
PROMOTED = decision(SNAP, promotions=["u"])
KEPT = replace(NOTHING, reservations=(RESERVED,))
LATER = replace(NOTHING, reservations=(replace(RESERVED, start=NOW + 120),))


@pytest.mark.parametrize(
    ("without", "with_it", "expected"),
    [
        (NOTHING, STOPPED, {"r": Effect.STOPS}),
        (NOTHING, MOVED, {"r": Effect.MOVES}),
        (MOVED, STOPPED, {"r": Effect.WAITS}),
        (MOVED, NOTHING, {}),
        (STOPPED, STOPPED, {}),
        (STOPPED, NOTHING, {}),
        (STARTED, NOTHING, {"w": Effect.WAITS}),
        (STARTED, UNCHARGED, {"w": Effect.UNPROTECTED}),
        (PROMOTED, NOTHING, {"u": Effect.UNPROTECTED}),
        (PROMOTED, decision(SNAP, stops=[stop("u", "z")]), {"u": Effect.STOPS}),
        (KEPT, LATER, {"w": Effect.RESERVED_LATER}),
        (KEPT, NOTHING, {"w": Effect.RESERVED_LATER}),
        (KEPT, STARTED, {}),
        (LATER, KEPT, {}),
    ],
)
def test_effects(without: Decision, with_it: Decision, expected: dict[str, Effect]) -> None:
    outcome = Laboratory(SNAP, lambda snapshot: with_it, without).attempt(REQUEST)
    assert {row.workload: row.effect for row in outcome.displaced} == expected
    assert all(row.gpus == 8 for row in outcome.displaced)
