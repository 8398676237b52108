"""The budget tree for people: what each allocation may use, has used and is owed, and what its budget cannot pay for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from allocator.entitlement.model import NO_BUDGET, Entitlement
from allocator.entitlement.tree import NO_LIMIT
from allocator.explain.words import counted, duration, gpu_hours
from allocator.topology import IntArray
from allocator.wire.changes import ChangeSet

View = dict[str, Any]
"""Plain data, ready for JSON. `view` names the kind; spans and instants are seconds, the rest says its unit."""


def budgets_view(ent: Entitlement) -> View:
    """The tree with shares, GPU-hours a day, budget, usage, balance and entitlement by pool, and what cannot be funded."""
    names = {allocation.id: allocation.name for allocation in ent.snapshot.budgets}
    return {
        "view": "budgets",
        "now": ent.snapshot.now,
        "pools": _pools(ent),
        "rows": [row for vertex in _in_tree_order(ent) for row in allocation_views(ent, vertex, names)],
        "warnings": [*ent.warnings, *unfunded_warnings(ent)],
    }


def try_view(before: Entitlement, after: Entitlement, changes: ChangeSet) -> View:
    """Two trees side by side: as things are, and as they would be under the changes."""
    old = {(row["id"], row["pool"]): row for row in budgets_view(before)["rows"]}
    new = {(row["id"], row["pool"]): row for row in budgets_view(after)["rows"]}
    now = before.snapshot.now
    return {
        "view": "budgets_try",
        "now": now,
        "author": changes.author,
        "reason": changes.reason,
        "effective": changes.effective,
        "pools": _pools(after),
        "rows": [
            {"id": key, "pool": pool, "depth": (new.get((key, pool)) or old[key, pool])["depth"]}
            | {"change": _change(old.get((key, pool)), new.get((key, pool)))}
            | {"before": old.get((key, pool)), "after": new.get((key, pool))}
            for key, pool in _merged_order(list(old), list(new))
        ],
        "funded": {"before": _funded(before), "after": _funded(after)},
        "cannot_be_decided": sorted(_undecidable(after) - _undecidable(before)),
        "warnings": [*after.warnings, *unfunded_warnings(after)],
        "warnings_before": [*before.warnings, *unfunded_warnings(before)],
    }


def _pools(ent: Entitlement) -> list[View]:
    market = ent.market
    return [
        {"pool": name, "installed_gpus": int(market.installed[pool]), "schedulable_gpus": int(market.schedulable[pool])}
        for pool, name in enumerate(ent.layout.pools)
    ]


def _in_tree_order(ent: Entitlement) -> Iterator[int]:
    """The vertices as a tree is read: each before its children. The root is left out."""
    stack = list(reversed(ent.tree.children[0]))
    while stack:
        vertex = stack.pop()
        yield vertex
        stack.extend(reversed(ent.tree.children[vertex]))


def allocation_views(ent: Entitlement, vertex: int, names: Mapping[str, str | None]) -> Iterator[View]:
    """One vertex, pool by pool."""
    tree, market = ent.tree, ent.market
    parent = int(tree.parent[vertex])
    for pool, pool_name in enumerate(ent.layout.pools):
        share = tree.path_share(vertex, pool)
        above = tree.path_share(parent, pool)
        usage, promised = int(market.usage[vertex, pool]), int(market.outstanding[vertex, pool])
        budget = None if market.budget[vertex, pool] == NO_BUDGET else int(market.budget[vertex, pool])
        yield {
            "id": tree.ids[vertex],
            "name": names.get(tree.ids[vertex]),
            "parent": tree.ids[parent] or None,
            "depth": int(tree.depth[vertex]) - 1,
            "pool": pool_name,
            "share_of_parent": float(share / above) if above else 0.0,
            "share": float(share),
            "gpu_hours_per_day": float(share * int(market.installed[pool]) * 24),
            "budget_gpu_seconds": budget,
            "usage_gpu_seconds": usage,
            "uncharged_gpu_seconds": int(market.uncharged_usage[vertex, pool]),
            "promised_gpu_seconds": promised,
            "balance_gpu_seconds": None if budget is None else budget - usage - promised,
            "entitled_gpus": int(market.entitled[vertex, pool]) / 1000,
            "charged_gpus": int(market.held[vertex, pool]),
            "demand_gpus": int(market.demand[vertex, pool]),
            "gpu_limit": None if tree.gpu_limit[vertex] == NO_LIMIT else int(tree.gpu_limit[vertex]),
        }


# --- what waits and cannot be paid --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _Asked:
    """What waits for funds: number, GPU-seconds of promises, and how many are funded; shape (num_vertices, num_pools)."""

    number: IntArray
    cost: IntArray
    funded: IntArray


def unfunded_warnings(ent: Entitlement) -> list[str]:
    """One sentence for each vertex and pool whose budget cannot fund what waits there."""
    rows = _waiting_rows(ent)
    asked = _asked(ent, rows)
    found = []
    for vertex in _in_tree_order(ent):
        for pool, name in enumerate(ent.layout.pools):
            budget, left = int(ent.market.budget[vertex, pool]), int(ent.market.available[vertex, pool])
            if budget == NO_BUDGET or asked.cost[vertex, pool] <= left:
                continue
            number, funded = int(asked.number[vertex, pool]), int(asked.funded[vertex, pool])
            found.append(
                f"{ent.tree.ids[vertex]} in {name}: what waits asks for promises of "
                f"{gpu_hours(int(asked.cost[vertex, pool]))} GPU-hours, {gpu_hours(left)} of {gpu_hours(budget)} are left; "
                f"{funded} of {counted(number, 'workload')} funded"
            )
    return found + _hopeless(ent, rows)


def _waiting_rows(ent: Entitlement) -> IntArray:
    """Rows that wait for a promise that a budget would have to pay."""
    works = ent.works
    payable = (works.leaf >= 0) & (works.home >= 0) & (works.promise > 0)
    rows = (payable & ~works.running & ~works.express).nonzero()[0]
    return rows[[row not in works.impossible for row in rows.tolist()]]


def _asked(ent: Entitlement, rows: IntArray) -> _Asked:
    works = ent.works
    cost = works.promise_cost[rows]
    return _Asked(*(_sum_up(ent, rows, amount) for amount in (np.ones_like(rows), cost, works.funded[rows].astype(np.int64))))


def _sum_up(ent: Entitlement, rows: IntArray, amount: IntArray) -> IntArray:
    total = np.zeros(ent.market.held.shape, dtype=np.int64)
    np.add.at(total, (ent.works.leaf[rows], ent.works.home[rows]), amount)
    summed: IntArray = ent.tree.sum_up(total)
    return summed


def _hopeless(ent: Entitlement, rows: IntArray) -> list[str]:
    """Work that costs more than the whole budget of a vertex above it; the costliest of each vertex and pool is named."""
    works, market, costliest = ent.works, ent.market, dict[tuple[int, int], int]()
    cost = dict(zip(rows.tolist(), works.promise_cost[rows].tolist(), strict=True))
    for row in rows.tolist():
        pool = int(works.home[row])
        for vertex in ent.tree.funding_path(int(works.leaf[row])):
            if cost[row] > market.budget[vertex, pool]:
                best = costliest.get((vertex, pool), row)
                costliest[vertex, pool] = max(best, row, key=lambda one: (cost[one], -one))
    return [
        f"{ent.snapshot.workloads[row].id} ({counted(int(works.gpus[row]), 'GPU')} for {duration(int(works.promise[row]))}) "
        f"costs {gpu_hours(cost[row])} GPU-hours, more than the whole budget of {ent.tree.ids[vertex]} in "
        f"{ent.layout.pools[pool]} ({gpu_hours(int(market.budget[vertex, pool]))}): it can never be funded"
        for (vertex, pool), row in sorted(costliest.items())
    ]


# --- before and after ---------------------------------------------------------------------------------------------------


def _merged_order(old: list[tuple[str, str]], new: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The new tree as it is read, then what is gone."""
    kept = set(new)
    return [*new, *(key for key in old if key not in kept)]


def _change(before: View | None, after: View | None) -> str:
    if before is None:
        return "added"
    if after is None:
        return "removed"
    return "same" if before == after else "changed"


def _funded(ent: Entitlement) -> dict[str, int]:
    """How much of what waits for a promise is funded."""
    rows = _waiting_rows(ent)
    chosen = rows[ent.works.funded[rows]]
    return {
        "workloads": len(chosen),
        "of_workloads": len(rows),
        "gpus": int(ent.works.gpus[chosen].sum()),
        "of_gpus": int(ent.works.gpus[rows].sum()),
    }


def _undecidable(ent: Entitlement) -> set[str]:
    """Waiting work that can never start as it is."""
    return {ent.snapshot.workloads[row].id for row in ent.works.impossible if not ent.works.running[row]}
