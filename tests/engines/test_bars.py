"""The bars for large gangs and drains, on clusters small enough to play through."""

from __future__ import annotations

from allocator.domain import Workload
from allocator.engine import allocate
from allocator.transition import apply, finish
from tests.builders import HOUR, NOW, budget, job, node, nodes, running, snapshot, used

NODES = 16


def staggered(nodes_of: int = NODES) -> list[Workload]:
    """A node each, with promises that end evenly over the next eight hours."""
    ends = [NOW + 8 * HOUR * (i + 1) // nodes_of for i in range(nodes_of)]
    return [
        running(f"d{i:02d}", "d", {f"n{i + 1}": 1}, since=end - 8 * HOUR, protected_until=end, min_runtime=8 * HOUR)
        for i, end in enumerate(ends)
    ]


def test_a_gang_of_half_a_full_pool_lands_in_time_and_idles_little() -> None:
    """Whoever keeps its promise ends, more of the same waits, and so does unallocated one-GPU work without end."""
    gang = job("gang", "h", 8 * NODES // 2, min_runtime=8 * HOUR)
    more = [job(f"m{i}", "d", 8, min_runtime=8 * HOUR) for i in range(NODES)]
    fillers = [job(f"u{i:03d}", "f", 1, min_runtime=0) for i in range(2 * 8 * NODES)]
    budgets = [budget("h"), budget("d"), budget("f", 0)]
    snap = snapshot(nodes(NODES), budgets, [*staggered(), gang, *more, *fillers], usage=[used("d", 40 * 128, ago=20 * HOUR)])
    epoch, idle = HOUR // 2, 0
    for _ in range(17):
        found = allocate(snap, engine="greedy")
        if any(row.workload == "gang" for row in found.starts):
            break
        (held,) = (row for row in found.reservations if row.workload == "gang")
        assert held.start <= NOW + 8 * HOUR
        snap = apply(snap, found, epoch)
        runs = [work for work in snap.workloads if work.run is not None]
        idle += epoch * (8 * NODES - sum(work.gpus for work in runs))
        kept = [w.id for w in runs if w.allocation == "d" and w.run is not None and (w.run.protected_until or 0) <= snap.now]
        snap = finish(snap, *kept)
    waited = snap.now - NOW
    assert any(row.workload == "gang" for row in found.starts)
    assert waited <= 8 * HOUR + epoch
    assert idle <= 0.03 * gang.gpus * waited


def test_a_drain_needs_nobody_and_breaks_no_promise() -> None:
    works = staggered(8)
    machines = [node(f"n{i + 1}", f"r{i // 4}", **({"state": "drain"} if i < 4 else {})) for i in range(8)]  # type: ignore[arg-type]
    snap = snapshot(machines, [budget("d")], works)
    told = {row.node: row.free_at for row in allocate(snap, engine="greedy").drains}
    for _ in range(9):
        found = allocate(snap, engine="greedy")
        assert found.contract_broken == ()
        for row in found.drains:
            assert row.drained == ((told[row.node] or 0) <= snap.now)
        if all(row.drained for row in found.drains):
            break
        snap = apply(snap, found, HOUR)
    assert all(row.drained for row in found.drains)
    assert snap.now <= NOW + 8 * HOUR
