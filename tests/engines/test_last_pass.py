"""The last pass: what it makes of plans that engines seldom give."""

from __future__ import annotations

from dataclasses import replace

import pytest

from allocator.domain import Snapshot
from allocator.engine.last_pass import last_pass
from allocator.engine.plan import Plan, after_plan
from allocator.engine.report import decision_of
from allocator.entitlement import Entitlement, entitle
from allocator.verify import verify
from allocator.verify.after import Placed
from allocator.verify.score import score_of
from allocator.wire import snapshot_digest
from tests.builders import HOUR, NOW, job, node, used
from tests.engines.epochs import NOTHING
from tests.engines.test_relocation import racks

LAST_FUNDS = used("a", 2298)
"""Leaves `a` with enough for one promise of two hours to four GPUs, and not for two."""


def ent_of(snap: Snapshot) -> tuple[Entitlement, dict[str, int], dict[str, int]]:
    """The facts, and the rows of work and indices of nodes by name."""
    ent = entitle(snap)
    return ent, {work.id: row for row, work in enumerate(snap.workloads)}, dict(ent.layout.index)


def broken(ent: Entitlement, plan: Plan) -> list[str]:
    """What the verifier says of a plan."""
    score = score_of(after_plan(ent, plan))
    report = replace(NOTHING, objective=score.total, terms=score.as_dict())
    decision = decision_of(ent, plan, snapshot_digest(ent.snapshot), report, {})
    return [str(found) for found in verify(ent.snapshot, decision, ent).violations]


@pytest.mark.parametrize("drains", [None, NOW + HOUR])
def test_what_a_move_that_is_taken_back_leaves_pays_for_a_start(drains: int | None) -> None:
    """`small` moves for nobody and takes the last funds of its budget, so `poor` starts uncharged: on a node that it has to
    leave before a promise would end, it may not stay uncharged either, and starts elsewhere."""
    machines = [node("c1", "c", drain_deadline=drains)]
    snap = racks(None, job("poor", "a", 4), usage=[LAST_FUNDS], machines=machines)
    ent, row, at = ent_of(snap)
    starts = {row["small"]: Placed({at["b2"]: 1}, charged=True), row["poor"]: Placed({at["c1"]: 1}, charged=False)}
    plan = Plan(starts, frozenset({row["small"]}), frozenset())
    assert not any("funding" in found for found in broken(ent, plan))
    mended = last_pass(ent, plan)
    assert row["small"] not in mended.stops
    assert mended.starts[row["poor"]].charged
    assert (at["c1"] in mended.starts[row["poor"]].placement) == (drains is None)
    assert broken(ent, mended) == []
