"""Nodes that drain, and what allocations hold, are owed and may spend."""

from __future__ import annotations

from allocator.domain import AllocationRow, DrainRow, Snapshot
from allocator.entitlement import entitle
from allocator.explain import annotate
from tests.builders import HOUR, NOW, budget, decision, job, node, nodes, running, snapshot, start, stop


def drains(snap: Snapshot) -> dict[str, DrainRow]:
    return {row.node: row for row in annotate(entitle(snap), decision(snap)).drains}


def test_a_draining_node_waits_for_the_last_promise() -> None:
    works = [
        running("r1", "a", {"n1": 1}, gpus=2, protected_until=NOW + 100),
        running("r2", "a", {"n1": 1}, gpus=2, protected_until=NOW + 900),
        running("r3", "a", {"n2": 1}, gpus=2, protected_until=NOW + 9000),
    ]
    snap = snapshot([node("n1", state="drain"), node("n2")], [budget("a")], works)
    assert drains(snap) == {"n1": DrainRow(node="n1", drained=False, free_at=NOW + 900, waits_for=("r1", "r2"))}


def test_a_deadline_ends_the_wait() -> None:
    work = running("r", "a", {"n1": 1}, protected_until=NOW + 9 * HOUR)
    snap = snapshot([node("n1", state="drain", drain_deadline=NOW + HOUR)], [budget("a")], [work])
    assert drains(snap)["n1"] == DrainRow(node="n1", drained=False, free_at=NOW + HOUR, waits_for=("r",))


def test_an_announced_drain_removes_nothing_before_its_deadline() -> None:
    works = [
        running("kept", "a", {"n1": 1}, gpus=2, protected_until=NOW + 600),
        running("free", "a", {"n1": 1}, gpus=2, charged=False, min_runtime=0),
    ]
    snap = snapshot([node("n1", drain_deadline=NOW + HOUR)], [budget("a")], works)
    assert drains(snap)["n1"] == DrainRow(node="n1", drained=False, free_at=NOW + HOUR, waits_for=("kept",))


def test_an_empty_node_has_drained() -> None:
    machines = [
        node("n1", state="drain"),
        node("n2", drain_deadline=NOW + HOUR),
        node("n3", drain_deadline=NOW - 1),
        node("n4"),
    ]
    found = drains(snapshot(machines, [budget("a")]))
    assert found == {name: DrainRow(node=name, drained=True, free_at=NOW, waits_for=()) for name in ("n1", "n2", "n3")}


def test_work_that_this_decision_stops_is_gone() -> None:
    snap = snapshot([node("n1", state="drain")], [budget("a")], [running("r", "a", {"n1": 1})])
    found = annotate(entitle(snap), decision(snap, stops=[stop("r")]))
    assert found.drains == (DrainRow(node="n1", drained=True, free_at=NOW, waits_for=()),)


def test_allocations_count_all_they_hold_and_every_vertex_has_a_row_for_every_pool() -> None:
    machines = [*nodes(3), node("m1", pool="b200")]
    budgets = [budget("p", 3), budget("a", 1, "p"), budget("b", 2, "p", funds=False), budget("q", 1, share_by_pool={"b200": 0})]
    works = [
        running("paid", "a", {"n1": 1}),
        running("free", "b", {"n2": 1}, charged=False, min_runtime=0),
        running("gone", "nobody", {"n3": 1}, gpus=4),
        job("new", "b", 8, pools=("b200",)),
    ]
    snap = snapshot(machines, budgets, works)
    answer = decision(snap, starts=[start("new", {"m1": 1})], stops=[stop("paid")])
    rows = {(row.id, row.pool): row for row in annotate(entitle(snap), answer).allocations}
    assert list(rows) == sorted(rows)
    assert {key for key, _ in rows} == {"p", "a", "b", "q", "nobody"}
    assert held(rows["p", "h100"]) == (16, 8)
    assert held(rows["a", "h100"]) == (8, 0)
    assert held(rows["b", "h100"]) == (8, 8)
    assert held(rows["b", "b200"]) == (0, 8)
    assert held(rows["p", "b200"]) == (0, 8)
    assert held(rows["nobody", "h100"]) == (4, 4)
    assert (rows["a", "h100"].share, rows["a", "b200"].share, rows["nobody", "h100"].share) == (0.25, 1 / 3, 0.0)
    assert rows["b", "h100"].budget_gpu_seconds is None
    assert rows["a", "h100"].budget_gpu_seconds == 24 * (7 * 24 + 8) * HOUR // 4


def held(row: AllocationRow) -> tuple[int, int]:
    return row.gpus_before, row.gpus_after


def test_entitlement_and_usage_are_those_of_the_market() -> None:
    snap = snapshot(nodes(2), [budget("a"), budget("b")], [running("r", "a", {"n1": 1}), job("w", "b", 16)])
    ent = entitle(snap)
    for row in annotate(ent, decision(snap)).allocations:
        vertex = ent.tree.index[row.id]
        assert row.entitled_milli == ent.market.entitled[vertex, 0]
        assert row.usage_gpu_seconds == ent.market.usage[vertex, 0]


def test_warnings_of_the_budgets_are_told_once() -> None:
    snap = snapshot(nodes(1), [budget("a", 0)], [running("r", "ghost", {"n1": 1}, charged=False)])
    ent = entitle(snap)
    once = annotate(ent, decision(snap))
    assert list(once.warnings) == list(ent.warnings)
    assert any("zero" in warning for warning in once.warnings)
    assert annotate(ent, once) == once
