"""A decision in a few sentences for managers: python docs/examples/summary.py SNAPSHOT DECISION."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator

from allocator import Decision, Snapshot, load_decision, load_snapshot, verify

CAUSES = {
    "share": "others are owed the GPUs",
    "express": "a short debugging job needs them",
    "drain": "their nodes go into maintenance",
    "node_down": "a node of theirs died",
}
WAITS = {
    "unfunded": "their budget is used up",
    "over_entitlement": "others are owed the GPUs",
    "over_limit": "their allocation is at its limit",
    "blocked_by_protection": "they wait for a promise to others to end",
    "no_capacity": "no free place fits them",
    "pool_down": "their GPUs are out of order",
    "invalid_request": "their request has a mistake",
    "topology_impossible": "no part of the cluster could hold them",
    "search_truncated": "time was too short to place them",
}


def sentences(snapshot: Snapshot, decision: Decision) -> Iterator[str]:
    """What a manager asks, one line each."""
    works = {work.id: work for work in snapshot.workloads}
    tops = {vertex.id for vertex in snapshot.budgets if vertex.parent is None}
    rows = [row for row in decision.allocations if row.id in tops]
    installed = sum(node.gpus for node in snapshot.cluster.nodes)
    away = sum(node.gpus for node in snapshot.cluster.nodes if node.state != "up")
    before, after = sum(row.gpus_before for row in rows), sum(row.gpus_after for row in rows)
    yield f"In use    {after:,} of {installed:,} GPUs, {before:,} before; {away:,} are on dead or draining nodes"
    started = [works[row.workload].gpus for row in decision.starts]
    charged = sum(row.charged for row in decision.starts)
    yield f"Start     {len(started)} workloads on {sum(started):,} GPUs; {charged} of them with a promised running time"
    causes = Counter(CAUSES[row.reason] for row in decision.preemptions)
    lost = sum(row.lost_gpu_seconds for row in decision.preemptions) / 3600
    part = lost / (24 * installed)
    yield f"Stop      {len(decision.preemptions)} workloads; {lost:,.0f} GPU-hours of work are lost, {part:.2%} of a day"
    yield from (f"            {count} because {cause}" for cause, count in causes.most_common())
    waits = Counter(WAITS[row.reason] for row in decision.waiting)
    yield f"Wait      {len(decision.waiting)} workloads"
    yield from (f"            {count} because {why}" for why, count in waits.most_common())
    broken = len(decision.contract_broken)
    yield f"Promises  {broken} broken by dead nodes or passed deadlines, none for the sake of others"
    gap = decision.solver.gap
    proof = "not proven" if gap is None else f"no other choice could be worth more than {gap:.2%} of the cluster's time"
    yield f"Proof     {proof}"
    yield f"Check     {'all rules are kept' if verify(snapshot, decision).ok else 'RULES ARE BROKEN'}"


if __name__ == "__main__":
    for sentence in sentences(load_snapshot(sys.argv[1]), load_decision(sys.argv[2])):
        print(sentence)  # noqa: T201
