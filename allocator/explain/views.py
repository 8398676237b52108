"""A decision for people, as plain data: the epoch, one workload, one allocation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from allocator.domain import AllocationRow, Decision, Issue, SnapshotError, WaitingRow, Workload
from allocator.entitlement.model import Entitlement
from allocator.explain.after import After, build_after
from allocator.explain.budget_views import View, allocation_views
from allocator.wire.shapes import nearest, show

MOST_LISTED = 20
"""Workloads that a list of a view names at most; how many there are is said beside it."""


def epoch_view(ent: Entitlement, decision: Decision) -> View:
    """The whole decision: what moves and why, who has what, and what waits for which reason."""
    _require_same(ent, decision)
    after = build_after(ent, decision)
    works = {work.id: work for work in ent.snapshot.workloads}
    solver = decision.solver
    return {
        "view": "epoch",
        "now": decision.now,
        "pools": _pools(ent, after),
        "starts": _sums(works, [row.workload for row in decision.starts])
        | {
            "charged_gpus": sum(works[row.workload].gpus for row in decision.starts if row.charged),
            "express": sum(row.express for row in decision.starts),
        },
        "stops": _stops(works, decision),
        "promotions": _sums(works, [row.workload for row in decision.promotions]),
        "renewals": len(decision.renewals),
        "contract_broken": [
            {"workload": row.workload, "promised": row.promised, "cause": row.cause} for row in decision.contract_broken
        ],
        "drains": [
            {"node": row.node, "drained": row.drained, "free_at": row.free_at, "waits_for": list(row.waits_for)}
            for row in decision.drains
        ],
        "waiting": _waiting_by_reason(works, decision.waiting),
        "allocations": [_allocation_row(row, ent) for row in decision.allocations],
        "solver": {
            "rung": solver.rung,
            "engine": solver.engine,
            "status": solver.status,
            "gap": solver.gap,
            "objective_gpu_seconds": solver.objective / 1000,
            "terms_gpu_seconds": {name: value / 1000 for name, value in solver.terms.items()},
            "notes": list(solver.notes),
        },
        "warnings": list(decision.warnings),
    }


def workload_view(ent: Entitlement, decision: Decision, key: str) -> View:
    """One workload: what it asks for, what happens to it and why, and what its allocation is owed.

    Raises
    ------
    SnapshotError
        If there is no such workload.
    """
    _require_same(ent, decision)
    rows = {work.id: row for row, work in enumerate(ent.snapshot.workloads)}
    waiting = next((row for row in decision.waiting if row.workload == key), None)
    view: View = {"view": "workload", "now": decision.now, "id": key}
    if key not in rows:
        if waiting is None:
            raise _unknown("workload", key, sorted({*rows, *(row.workload for row in decision.waiting)}))
        return view | {"state": "rejected", "waiting": _waiting(waiting)}
    row, work = rows[key], ent.snapshot.workloads[rows[key]]
    return view | {
        "state": _states(decision, [work])[key],
        "asks": _asks(work),
        "run": _run_after(ent, decision, row),
        "stopped": _stop_of(decision, key),
        "waiting": None if waiting is None else _waiting(waiting),
        "makes_room": [stop.workload for stop in decision.preemptions if key in stop.beneficiaries],
        "facts": _facts(ent, row),
        "path": _path(ent, row),
    }


def allocation_view(ent: Entitlement, decision: Decision, key: str) -> View:
    """One allocation: its budget and entitlement by pool, and what runs, starts, stops and waits below it.

    Raises
    ------
    SnapshotError
        If there is no such allocation.
    """
    _require_same(ent, decision)
    tree = ent.tree
    vertices = [vertex for vertex in range(1, len(tree.ids)) if tree.ids[vertex] == key]
    if not vertices:
        raise _unknown("allocation", key, sorted(tree.ids[1:]))
    names = {allocation.id: allocation.name for allocation in ent.snapshot.budgets}
    below = _below(ent, vertices)
    works = {work.id: work for row, work in enumerate(ent.snapshot.workloads) if int(ent.works.leaf[row]) in below}
    states = _states(decision, works.values())
    after = {(row.id, row.pool): row for row in decision.allocations}
    return {
        "view": "allocation",
        "now": decision.now,
        "id": key,
        "name": names.get(key),
        "path": [tree.ids[vertex] for vertex in reversed(tree.path(vertices[0]))],
        "children": sorted(tree.ids[child] for vertex in vertices for child in tree.children[vertex]),
        "pools": [
            row | {"owed_gpus": int(ent.market.owed[vertex, pool]) / 1000} | _before_and_after(after.get((key, row["pool"])))
            for vertex in vertices
            for pool, row in enumerate(allocation_views(ent, vertex, names))
        ],
        "runs": _named(works, (each for each, state in states.items() if state in ("runs", "is promoted"))),
        "promoted": _named(works, (row.workload for row in decision.promotions)),
        "starts": _named(works, (row.workload for row in decision.starts)),
        "stops": _named(works, (row.workload for row in decision.preemptions)),
        "waiting": _waiting_by_reason(works, [row for row in decision.waiting if row.workload in works]),
    }


# --- parts ---------------------------------------------------------------------------------------------------------------


def _pools(ent: Entitlement, after: After) -> list[View]:
    before, held = after.before[0], after.held[0]
    return [
        {
            "pool": name,
            "installed_gpus": int(ent.market.installed[pool]),
            "schedulable_gpus": int(ent.market.schedulable[pool]),
            "used_before": int(before[pool]),
            "used_after": int(held[pool]),
        }
        for pool, name in enumerate(ent.layout.pools)
    ]


def _sums(works: Mapping[str, Workload], keys: Sequence[str]) -> View:
    return {"workloads": len(keys), "gpus": sum(works[key].gpus for key in keys)}


def _stops(works: Mapping[str, Workload], decision: Decision) -> list[View]:
    """The stops by reason."""
    reasons = Counter(stop.reason for stop in decision.preemptions)
    return [
        {"reason": reason.value}
        | _sums(works, [stop.workload for stop in decision.preemptions if stop.reason is reason])
        | {"lost_gpu_seconds": sum(stop.lost_gpu_seconds for stop in decision.preemptions if stop.reason is reason)}
        for reason in sorted(reasons)
    ]


def _waiting_by_reason(works: Mapping[str, Workload], rows: Iterable[WaitingRow]) -> list[View]:
    """What waits, by reason: how much, the one that has waited longest, and when the first could start."""
    groups: dict[str, list[WaitingRow]] = {}
    for row in rows:
        groups.setdefault(row.reason.value, []).append(row)
    found = []
    for reason, group in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])):
        known = [works[row.workload] for row in group if row.workload in works]
        oldest = min(known, key=lambda work: (work.submit_time, work.id), default=None)
        instants = [row.not_before for row in group if row.not_before is not None]
        found.append(
            {
                "reason": reason,
                "workloads": len(group),
                "gpus": sum(work.gpus for work in known),
                "oldest": group[0].workload if oldest is None else oldest.id,
                "waits_since": None if oldest is None else oldest.submit_time,
                "not_before": min(instants, default=None),
                "never": sum(row.never for row in group),
            }
        )
    return found


def _allocation_row(row: AllocationRow, ent: Entitlement) -> View:
    vertex = ent.tree.index.get(row.id, -1)
    return {
        "id": row.id,
        "pool": row.pool,
        "depth": 0 if vertex < 0 else int(ent.tree.depth[vertex]) - 1,
        "parent": None if vertex < 0 else ent.tree.ids[int(ent.tree.parent[vertex])] or None,
        "share": row.share,
        "budget_gpu_seconds": row.budget_gpu_seconds,
        "usage_gpu_seconds": row.usage_gpu_seconds,
        "entitled_gpus": row.entitled_milli / 1000,
        "gpus_before": row.gpus_before,
        "gpus_after": row.gpus_after,
    }


def _states(decision: Decision, works: Iterable[Workload]) -> dict[str, str]:
    """What happens to each, in a word or two."""
    starts = {row.workload for row in decision.starts}
    stops = {row.workload for row in decision.preemptions}
    promoted = {row.workload for row in decision.promotions}
    states = {}
    for work in works:
        if work.id in stops:
            states[work.id] = "moves" if work.id in starts else "stops"
        elif work.id in starts:
            states[work.id] = "starts"
        elif work.id in promoted:
            states[work.id] = "is promoted"
        else:
            states[work.id] = "waits" if work.run is None else "runs"
    return states


def _asks(work: Workload) -> View:
    topology = work.topology
    return {
        "allocation": work.allocation,
        "user": work.user,
        "tasks": work.tasks,
        "gpus_per_task": work.gpus_per_task,
        "gpus": work.gpus,
        "pools": list(work.pools),
        "required": topology.required,
        "preferred": topology.preferred,
        "segment": None if topology.segment is None else {"level": topology.segment.level, "tasks": topology.segment.tasks},
        "min_runtime": work.min_runtime,
        "submit_time": work.submit_time,
        "priority": work.priority,
        "preempted": work.preempted,
        "unfunded": work.unfunded.value,
    }


def _run_after(ent: Entitlement, decision: Decision, row: int) -> View | None:
    """Where it runs after the decision, and until when it is protected; None if it does not."""
    work = ent.snapshot.workloads[row]
    for start in decision.starts:
        if start.workload == work.id:
            return _run(decision.now, start.placement, start.charged, start.protected_until, start.express)
    if work.run is None or any(stop.workload == work.id for stop in decision.preemptions):
        return None
    until = int(ent.works.protected_until[row]) or None
    for promotion in decision.promotions:
        if promotion.workload == work.id:
            return _run(work.run.start_time, work.run.placement, True, promotion.protected_until, False)
    return _run(work.run.start_time, work.run.placement, work.run.charged, until, work.run.express)


def _run(since: int | None, placement: Mapping[str, int], charged: bool, until: int | None, express: bool) -> View:
    return {
        "since": since,
        "placement": dict(sorted(placement.items())),
        "charged": charged,
        "protected_until": until,
        "express": express,
    }


def _stop_of(decision: Decision, key: str) -> View | None:
    stop = next((stop for stop in decision.preemptions if stop.workload == key), None)
    if stop is None:
        return None
    return {
        "reason": stop.reason.value,
        "beneficiaries": list(stop.beneficiaries),
        "lost_gpu_seconds": stop.lost_gpu_seconds,
        "stop_by": stop.stop_by,
    }


def _waiting(row: WaitingRow) -> View:
    return {
        "reason": row.reason.value,
        "detail": row.detail,
        "not_before": row.not_before,
        "never": row.never,
        "blockers": list(row.blockers),
        "eta": row.eta,
        "entitled_since": row.entitled_since,
    }


def _facts(ent: Entitlement, row: int) -> View:
    """What the rules see in it."""
    works = ent.works
    return {
        "promise": int(works.promise[row]),
        "cost_gpu_seconds": int(works.promise_cost[row]),
        "assured": bool(works.assured[row]),
        "express_lane": bool(works.express[row]),
        "counts_in_demand": bool(works.funded[row]),
        "entitled": bool(works.entitled[row]),
        "protected": bool(works.protected[row]),
        "may_be_stopped_for_shares": bool(works.licensed[row]),
        "stop_would_lose_gpu_seconds": int(works.lost_gpu_seconds[row]) if works.running[row] else None,
    }


def _path(ent: Entitlement, row: int) -> list[View]:
    """Claims and funds of the vertices above it, from the leaf up, in the pool where it counts."""
    leaf, pool = int(ent.works.leaf[row]), int(ent.works.home[row])
    if leaf < 0 or pool < 0:
        return []
    market, tree = ent.market, ent.tree
    return [
        {
            "id": tree.ids[vertex],
            "pool": ent.layout.pools[pool],
            "owed_gpus": int(market.owed[vertex, pool]) / 1000,
            "entitled_gpus": int(market.entitled[vertex, pool]) / 1000,
            "charged_gpus": int(market.held[vertex, pool]),
            "left_gpu_seconds": int(market.available[vertex, pool]) if tree.funds[vertex] else None,
        }
        for vertex in tree.path(leaf)
    ]


def _below(ent: Entitlement, vertices: Sequence[int]) -> set[int]:
    """These vertices and all below them."""
    found, stack = set[int](), list(vertices)
    while stack:
        vertex = stack.pop()
        found.add(vertex)
        stack.extend(ent.tree.children[vertex])
    return found


def _before_and_after(row: AllocationRow | None) -> View:
    return (
        {"gpus_before": None, "gpus_after": None}
        if row is None
        else {"gpus_before": row.gpus_before, "gpus_after": row.gpus_after}
    )


def _named(works: Mapping[str, Workload], keys: Iterable[str]) -> View:
    """How much, and the largest of it by name."""
    known = sorted((works[key] for key in keys if key in works), key=lambda work: (-work.gpus, work.id))
    return {
        "workloads": len(known),
        "gpus": sum(work.gpus for work in known),
        "largest": [{"id": work.id, "gpus": work.gpus} for work in known[:MOST_LISTED]],
    }


def _require_same(ent: Entitlement, decision: Decision) -> None:
    """Refuse a decision that names what the snapshot does not have."""
    works, nodes = {work.id for work in ent.snapshot.workloads}, ent.layout.index
    rows: dict[str, Sequence[str]] = {
        "starts": [row.workload for row in decision.starts],
        "preemptions": [row.workload for row in decision.preemptions],
        "promotions": [row.workload for row in decision.promotions],
        "renewals": [row.workload for row in decision.renewals],
    }
    issues = [
        (f"$.{name}[{at}].workload", f"{key} is not in the snapshot")
        for name, keys in rows.items()
        for at, key in enumerate(keys)
        if key not in works
    ]
    issues += [
        (f"$.starts[{at}].placement", f"{name} is no node of the snapshot")
        for at, start in enumerate(decision.starts)
        for name in start.placement
        if name not in nodes
    ]
    if issues:
        remedy = "explain a decision with the snapshot it was made for"
        raise SnapshotError([Issue(path=path, problem=problem, remedy=remedy) for path, problem in issues])


def _unknown(noun: str, key: str, valid: Sequence[str]) -> SnapshotError:
    return SnapshotError([Issue(path="$", problem=f"there is no {noun} {show(key)}", remedy=nearest(key, valid))])
