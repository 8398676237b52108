"""Offers: every way in which a waiting workload may start, and the shapes they need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from allocator.domain import Unfunded, Workload
from allocator.entitlement import Entitlement
from allocator.entitlement.costs import express_cost, idle_cost, spread_costs
from allocator.epoch.problem import Offers, Shapes, Victims
from allocator.topology.layout import BoolArray, IntArray


@dataclass(frozen=True, slots=True)
class Draft:
    """An offer before shapes and queues are numbered."""

    row: int
    pool: int
    charged: bool
    express: bool
    promise_cost: int
    must_be_unfunded: bool
    need: tuple[int, int, int]
    units: int
    unit_tasks: int
    required: int
    segment: tuple[int, int]
    spread: tuple[int, ...]
    fewest: tuple[int, ...]
    open_to: bytes

    @property
    def shape_key(self) -> tuple[object, ...]:
        """Offers with the same key need the same and may lie on the same nodes."""
        return (self.pool, self.charged, self.express, self.need, self.open_to)

    @property
    def kind(self) -> tuple[object, ...]:
        """Everything that tells offers apart but their rank."""
        return (
            *self.shape_key, self.promise_cost, self.must_be_unfunded,
            self.units, self.unit_tasks, self.required, self.segment, self.spread, self.fewest,
        )  # fmt: skip


def fundable_alone(ent: Entitlement, row: int, pool: int, cost: int) -> bool:
    """True if every funding vertex on the path could pay this promise, were it the only new one."""
    vertices = ent.tree.funding_path(int(ent.works.leaf[row]))
    return all(cost <= int(ent.market.available[vertex, pool]) for vertex in vertices)


def _modes(ent: Entitlement, row: int, work: Workload, pool: int) -> Iterator[tuple[bool, bool, int, bool]]:
    """The modes (charged, express, promise cost, must be unfunded) in which a workload may start in a pool."""
    if work.min_runtime == 0:
        yield False, False, 0, False
        return
    if ent.works.express[row]:
        yield True, True, 0, False
        return
    cost = ent.cost(row, pool)
    if ent.works.movable[row] and ent.works.charged[row]:
        if fundable_alone(ent, row, pool, cost):
            yield True, False, cost, False
        return
    if ent.works.prepaid[row] == pool:
        yield True, False, cost, False
        return
    alone = fundable_alone(ent, row, pool, cost)
    if alone:
        yield True, False, cost, False
    if work.unfunded is Unfunded.RUN and (not alone or ent.tree.funding_path(int(ent.works.leaf[row]))):
        yield False, False, cost if alone else 0, alone


def _accepted_pools(ent: Entitlement, work: Workload) -> list[int]:
    names = ent.layout.pools
    return [names.index(pool) for pool in dict.fromkeys(work.pools) if pool in names] if work.pools else list(range(len(names)))


class _Facts:
    """Memoised node masks and spread facts: thousands of workloads share a few classes of demand."""

    def __init__(self, ent: Entitlement) -> None:
        self.ent = ent
        self.masks: dict[tuple[object, ...], BoolArray] = {}
        self.spreads: dict[tuple[object, ...], tuple[tuple[int, ...], tuple[int, ...]]] = {}

    def mask(self, row: int, work: Workload, until: int | None) -> BoolArray:
        own = row if row in self.ent.own_limit else None
        key = (work.pools, tuple(sorted(work.node_labels.items())), work.exclude_nodes, until, own)
        if key not in self.masks:
            self.masks[key] = self.ent.may_start_on(row, until)
        return self.masks[key]

    def spread(self, row: int, work: Workload, pool: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        if work.tasks == 1:
            zero = (0,) * len(self.ent.layout.levels)
            return zero, tuple(1 for _ in zero)
        key = (
            pool, work.tasks, work.gpus_per_task, work.cpus_per_task, work.memory_gib_per_task, work.topology,
            tuple(sorted(work.node_labels.items())), work.exclude_nodes,
        )  # fmt: skip
        if key not in self.spreads:
            cost, fewest = spread_costs(self.ent, row, pool)
            self.spreads[key] = tuple(map(int, cost)), tuple(map(int, fewest))
        return self.spreads[key]


def draft_offers(ent: Entitlement) -> list[Draft]:
    """All offers of all candidates and of all work that may move, before ranking."""
    facts = _Facts(ent)
    drafts: list[Draft] = []
    for row in np.flatnonzero(ent.works.candidate | ent.works.movable):
        work = ent.snapshot.workloads[int(row)]
        for pool in [int(ent.works.run_pool[row])] if ent.works.movable[row] else _accepted_pools(ent, work):
            drafts += _offers_in_pool(ent, facts, int(row), work, pool)
    return drafts


def _offers_in_pool(ent: Entitlement, facts: _Facts, row: int, work: Workload, pool: int) -> Iterator[Draft]:
    levels = ent.layout.levels
    wish = work.topology
    required = levels.index(wish.required) if wish.required else -1
    whole = required == len(levels) - 1 and work.tasks > 1
    scale = work.tasks if whole else 1
    need = (work.gpus_per_task * scale, (work.cpus_per_task or 0) * scale, (work.memory_gib_per_task or 0) * scale)
    segment = (levels.index(wish.segment.level), wish.segment.tasks) if wish.segment and not whole else (-1, 0)
    spread, fewest = facts.spread(row, work, pool)
    for charged, express, cost, must_be_unfunded in _modes(ent, row, work, pool):
        until = ent.snapshot.now + int(ent.works.promise[row]) if charged else None
        mask = facts.mask(row, work, until) & (ent.layout.pool == pool)
        if not mask.any():
            continue
        yield Draft(
            row=row, pool=pool, charged=charged, express=express, promise_cost=cost, must_be_unfunded=must_be_unfunded,
            need=need, units=1 if whole else work.tasks, unit_tasks=scale,
            required=-1 if whole or work.tasks == 1 else required,
            segment=segment if work.tasks > 1 else (-1, 0), spread=spread, fewest=fewest, open_to=mask.tobytes(),
        )  # fmt: skip


def drop_unneeded(ent: Entitlement, drafts: Sequence[Draft]) -> list[Draft]:
    """Without uncharged offers of work that nothing in this decision could leave unfunded."""
    wanted: dict[tuple[int, int], int] = {}
    for draft in drafts:
        if draft.charged and draft.promise_cost:
            for vertex in ent.tree.funding_path(int(ent.works.leaf[draft.row])):
                wanted[vertex, draft.pool] = wanted.get((vertex, draft.pool), 0) + draft.promise_cost
    for row in np.flatnonzero(ent.works.promotable):
        pool = int(ent.works.run_pool[row])
        for vertex in ent.tree.funding_path(int(ent.works.leaf[row])):
            wanted[vertex, pool] = wanted.get((vertex, pool), 0) + int(ent.works.gpus[row] * ent.works.promise[row])
    tight = {key for key, total in wanted.items() if total > int(ent.market.available[key])}

    def stands(draft: Draft) -> bool:
        path = ent.tree.funding_path(int(ent.works.leaf[draft.row]))
        return not draft.must_be_unfunded or any((vertex, draft.pool) in tight for vertex in path)

    return [draft for draft in drafts if stands(draft)]


def number_queues(ent: Entitlement, drafts: Sequence[Draft]) -> tuple[list[Draft], IntArray]:
    """Offers ordered by queue and rank, and the queue of each; workloads too far back to fit their pools are left out.

    Workloads of one leaf whose offers differ in nothing are exchangeable, so those that would save more by starting may
    come first without loss: a queue longer than its pools can hold is cut. Work that moves is a queue of its own: it starts
    only if it is stopped.
    """
    by_row: dict[int, list[Draft]] = {}
    for draft in drafts:
        by_row.setdefault(draft.row, []).append(draft)
    queues: dict[tuple[object, ...], list[int]] = {}
    for row, own in by_row.items():
        kinds = sorted((draft.kind for draft in own), key=repr)
        key = (_mover(ent, row), int(ent.works.leaf[row]), bool(ent.works.entitled[row]), *kinds)
        queues.setdefault(key, []).append(row)
    ordered: list[Draft] = []
    numbers: list[int] = []
    for number, rows in enumerate(sorted(queues.values(), key=min)):
        rows.sort(key=lambda row: _rank_key(ent, row))
        for row in rows[: _most_that_fit(ent, by_row[rows[0]])]:
            ordered += by_row[row]
            numbers += [number] * len(by_row[row])
    return ordered, np.array(numbers, dtype=np.int64)


def _mover(ent: Entitlement, row: int) -> int:
    return row if ent.works.movable[row] else -1


def _rank_key(ent: Entitlement, row: int) -> tuple[int, int, int]:
    return (-int(ent.works.order_cost[row]), ent.snapshot.workloads[row].submit_time, row)


def _most_that_fit(ent: Entitlement, own: Sequence[Draft]) -> int:
    pools = {draft.pool for draft in own}
    capacity = sum(int(ent.market.schedulable[pool]) for pool in pools)
    return max(1, capacity // max(1, int(ent.works.gpus[own[0].row])))


def build_shapes(ent: Entitlement, drafts: Sequence[Draft]) -> tuple[Shapes, IntArray]:
    """The distinct shapes, and the shape of each offer."""
    first: dict[tuple[object, ...], int] = {}
    kept: list[Draft] = []
    index = np.empty(len(drafts), dtype=np.int64)
    for j, draft in enumerate(drafts):
        if draft.shape_key not in first:
            first[draft.shape_key] = len(kept)
            kept.append(draft)
        index[j] = first[draft.shape_key]
    num_nodes = len(ent.layout.names)
    masks = [np.frombuffer(draft.open_to, dtype=np.bool_) for draft in kept]
    shapes = Shapes(
        need=np.array([draft.need for draft in kept], dtype=np.int64).reshape(-1, 3).T.copy(),
        pool=np.array([draft.pool for draft in kept], dtype=np.int64),
        charged=np.array([draft.charged for draft in kept], dtype=np.bool_),
        express=np.array([draft.express for draft in kept], dtype=np.bool_),
        open_to=np.array(masks, dtype=np.bool_).reshape(len(kept), num_nodes),
    )
    return shapes, index


def build_offers(ent: Entitlement, drafts: Sequence[Draft], queue: IntArray, shape: IntArray, victims: Victims) -> Offers:
    """The drafts as arrays, with what starting each of them saves, and which stop it follows."""
    policy, works = ent.snapshot.policy, ent.works
    row = np.array([draft.row for draft in drafts], dtype=np.int64)
    gpus = works.gpus[row]
    express = np.array([draft.express for draft in drafts], dtype=np.bool_)
    gain = works.order_cost[row] + idle_cost(policy) * gpus
    gain = gain + np.array(
        [express_cost(policy, int(g)) if e else 0 for g, e in zip(gpus, express, strict=True)], dtype=np.int64
    )
    levels = len(ent.layout.levels)
    victim = {int(work): r for r, work in enumerate(victims.work)}
    return Offers(
        work=row,
        pool=_column(drafts, "pool"),
        leaf=works.leaf[row],
        gpus=gpus,
        units=_column(drafts, "units"),
        unit_tasks=_column(drafts, "unit_tasks"),
        shape=shape,
        charged=_column(drafts, "charged").astype(np.bool_),
        express=express,
        entitled=works.entitled[row] & ~works.movable[row],
        queue=queue,
        promise_cost=_column(drafts, "promise_cost"),
        gain=gain.astype(np.int64),
        required=_column(drafts, "required"),
        segment_level=np.array([draft.segment[0] for draft in drafts], dtype=np.int64),
        segment_units=np.array([draft.segment[1] for draft in drafts], dtype=np.int64),
        spread=np.array([draft.spread for draft in drafts], dtype=np.int64).reshape(-1, levels),
        fewest=np.array([draft.fewest for draft in drafts], dtype=np.int64).reshape(-1, levels),
        must_be_unfunded=_column(drafts, "must_be_unfunded").astype(np.bool_),
        victim=np.array([victim.get(draft.row, -1) for draft in drafts], dtype=np.int64),
    )


def _column(drafts: Sequence[Draft], name: str) -> IntArray:
    return np.array([getattr(draft, name) for draft in drafts], dtype=np.int64)
