"""Offers: every way in which a waiting workload may start, and the shapes they need."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from allocator.domain import Unfunded, Workload
from allocator.entitlement import Entitlement
from allocator.entitlement.alike import start_classes
from allocator.entitlement.costs import express_cost, idle_cost, spread_costs
from allocator.epoch.problem import Offers, Shapes, Victims
from allocator.topology.layout import NEVER, IntArray
from allocator.topology.once import once


class Draft(NamedTuple):
    """One way to start each of some workloads that differ in nothing but their rank."""

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
    available, vertices = _available(ent), ent.tree.funding_path(int(ent.works.leaf[row]))
    return all(cost <= available[vertex][pool] for vertex in vertices)


@once
def _available(ent: Entitlement) -> list[list[int]]:
    """What is left for promises by vertex and pool: single numbers of an array are dear."""
    found: list[list[int]] = ent.market.available.tolist()
    return found


def _modes(ent: Entitlement, row: int, work: Workload, pool: int) -> Iterator[tuple[bool, bool, int, bool]]:
    """The modes (charged, express, promise cost, must be unfunded) in which a workload may start in a pool."""
    if ent.works.unallocated[row]:
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
    if ent.works.prepaid[row] == pool or ent.works.assured[row]:
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


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Candidates that may start in the same ways: their rows, ascending, and the ways."""

    rows: IntArray
    drafts: tuple[Draft, ...]


class _Facts:
    """Memoised node masks and spread facts: thousands of workloads share a few classes of demand."""

    def __init__(self, ent: Entitlement) -> None:
        self.ent = ent
        self.request: list[int] = ent.works.request.tolist()
        by = ent.layout.promise_by
        self._ends: list[int] = np.unique(by[by < NEVER]).tolist()
        self.masks: dict[tuple[object, ...], bytes] = {}
        self.bytes: dict[bytes, bytes] = {}
        self.spreads: dict[tuple[int, int], tuple[tuple[int, ...], tuple[int, ...]]] = {}

    def open_to(self, row: int, until: int | None, pool: int) -> bytes:
        """The nodes of a pool on which it may start, one byte each; empty if there are none."""
        own = row if row in self.ent.own_limit else None
        # Promises that end between the same two of the instants by which promises must have ended somewhere are alike.
        end = until if until is None or own is not None else bisect_left(self._ends, until)
        key = (self.request[row], end, own, pool)
        if key not in self.masks:
            mask = self.ent.may_start_on(row, until) & (self.ent.layout.pool == pool)
            found = mask.tobytes() if mask.any() else b""
            self.masks[key] = self.bytes.setdefault(found, found)
        return self.masks[key]

    def spread(self, row: int, work: Workload, pool: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        key = (self.request[row], pool)
        if key not in self.spreads:
            levels = len(self.ent.layout.levels)
            zero = (0,) * levels, (1,) * levels
            self.spreads[key] = zero if work.tasks == 1 else self._spread(row, pool)
        return self.spreads[key]

    def _spread(self, row: int, pool: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        cost, fewest = spread_costs(self.ent, row, pool)
        return tuple(cost.tolist()), tuple(fewest.tolist())


def draft_offers(ent: Entitlement) -> list[Batch]:
    """All ways to start of all candidates and of all work that may move, before ranking; who has none is left out."""
    chosen = (ent.works.candidate | ent.works.movable).nonzero()[0]
    if not len(chosen):
        return []
    facts, known = _Facts(ent), dict[tuple[object, ...], tuple[Draft, ...]]()
    batches = []
    for rows in _alike(ent, chosen):
        row = int(rows[0])
        key = _way(facts, row)
        drafts = known.get(key)
        if drafts is None:
            drafts = known[key] = tuple(_drafts(ent, facts, row))
        if drafts:
            batches.append(Batch(rows, drafts))
    return batches


def _way(facts: _Facts, row: int) -> tuple[object, ...]:
    """Equal for workloads, of whatever leaf, that have the same offers."""
    ent, works, columns = facts.ent, facts.ent.works, facts.ent.columns
    cost = int(works.promise_cost[row])
    alone = tuple(fundable_alone(ent, row, pool, cost) for pool in range(len(ent.layout.pools)))
    own = row if row in ent.own_limit or works.movable[row] or works.prepaid[row] >= 0 else None
    return (
        facts.request[row], int(works.promise[row]), cost, bool(works.express[row]), bool(works.unallocated[row]),
        bool(columns.runs_unfunded[row]), alone, bool(ent.tree.funding_path(int(works.leaf[row]))), own,
    )  # fmt: skip


def _drafts(ent: Entitlement, facts: _Facts, row: int) -> Iterator[Draft]:
    work = ent.snapshot.workloads[row]
    pools = [int(ent.works.run_pool[row])] if ent.works.movable[row] else _accepted_pools(ent, work)
    for pool in pools:
        yield from _offers_in_pool(ent, facts, row, work, pool)


def _alike(ent: Entitlement, rows: IntArray) -> list[IntArray]:
    """The rows in groups that may start in the same ways, by the first row of each group; work that moves on its own."""
    code = np.where(ent.works.movable[rows], -1 - rows, start_classes(ent)[rows])
    order = np.argsort(code, kind="stable")
    groups = np.split(rows[order], np.diff(code[order]).nonzero()[0] + 1) if len(rows) else []
    return sorted(groups, key=lambda group: int(group[0]))


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
        open_to = facts.open_to(row, until, pool)
        if not open_to:
            continue
        yield Draft(
            pool=pool, charged=charged, express=express, promise_cost=cost, must_be_unfunded=must_be_unfunded,
            need=need, units=1 if whole else work.tasks, unit_tasks=scale,
            required=-1 if whole or work.tasks == 1 else required,
            segment=segment if work.tasks > 1 else (-1, 0), spread=spread, fewest=fewest, open_to=open_to,
        )  # fmt: skip


def drop_unneeded(ent: Entitlement, batches: Sequence[Batch]) -> list[Batch]:
    """Without uncharged offers of work that nothing in this decision could leave unfunded."""
    wanted: dict[tuple[int, int], int] = {}
    for batch in batches:
        path = ent.tree.funding_path(int(ent.works.leaf[batch.rows[0]]))
        for draft in batch.drafts:
            if draft.charged and draft.promise_cost:
                for vertex in path:
                    wanted[vertex, draft.pool] = wanted.get((vertex, draft.pool), 0) + draft.promise_cost * len(batch.rows)
    for row in ent.works.promotable.nonzero()[0]:
        pool = int(ent.works.run_pool[row])
        for vertex in ent.tree.funding_path(int(ent.works.leaf[row])):
            wanted[vertex, pool] = wanted.get((vertex, pool), 0) + int(ent.works.promise_cost[row])
    tight = {key for key, total in wanted.items() if total > int(ent.market.available[key])}

    def needed(batch: Batch) -> tuple[Draft, ...]:
        path = ent.tree.funding_path(int(ent.works.leaf[batch.rows[0]]))
        left = tuple(d for d in batch.drafts if not d.must_be_unfunded or any((v, d.pool) in tight for v in path))
        return batch.drafts if len(left) == len(batch.drafts) else left

    left = [Batch(batch.rows, needed(batch)) for batch in batches]
    return [batch for batch in left if batch.drafts]


@dataclass(frozen=True, slots=True, eq=False)
class Ranked:
    """Offers ordered by queue and rank: workload row, position in `drafts` and queue of each, shape (num_offers,)."""

    drafts: tuple[Draft, ...]
    row: IntArray
    draft: IntArray
    queue: IntArray


def number_queues(ent: Entitlement, batches: Sequence[Batch], most_units: Callable[[Draft], int]) -> Ranked:
    """Offers in the order of their queues; workloads too far back to fit their pools are left out.

    Workloads whose offers differ in nothing are exchangeable if they are of one leaf, or of none that matters, so those that
    would save more by starting may come first without loss: a queue longer than its pools can hold is cut. `most_units` says
    how many units of a draft could start at most. Work that moves is a queue of its own: it starts only if it is stopped.
    """
    queues: dict[tuple[object, ...], list[int]] = {}
    kinds: dict[int, frozenset[tuple[object, ...]]] = {}  # by the drafts, which many batches share
    for position, batch in enumerate(batches):
        if id(batch.drafts) not in kinds:
            kinds[id(batch.drafts)] = frozenset(draft.kind for draft in batch.drafts)
        first = int(batch.rows[0])
        matters = _leaf_that_matters(ent, batch)
        key = (_mover(ent, first), matters, bool(ent.works.entitled[first]), kinds[id(batch.drafts)])
        queues.setdefault(key, []).append(position)
    num_drafts = np.array([len(batch.drafts) for batch in batches], dtype=np.int64)
    members = [_first_in_rank(ent, batches, own, most_units) for own in queues.values()]
    nothing = np.zeros(0, dtype=np.int64)
    row, owner = (np.concatenate(parts) for parts in zip(*members, (nothing, nothing), strict=True))
    queue = np.repeat(np.arange(len(members)), [len(rows) for rows, _ in members])
    count = num_drafts[owner]
    at = np.repeat(np.arange(len(row)), count)
    nth = np.arange(len(at)) - np.repeat(np.cumsum(count) - count, count)
    drafts = tuple(draft for batch in batches for draft in batch.drafts)
    return Ranked(drafts, row[at], (np.cumsum(num_drafts) - num_drafts)[owner[at]] + nth, queue[at])


def _leaf_that_matters(ent: Entitlement, batch: Batch) -> int:
    """The leaf of a batch; -1 for work that draws on no funds, counts in no share and stands under no gpu_limit."""
    leaf = int(ent.works.leaf[batch.rows[0]])
    free = not any(draft.charged or draft.must_be_unfunded for draft in batch.drafts)
    return -1 if free and not any(ent.tree.gpu_limit[vertex] >= 0 for vertex in ent.tree.path(leaf)) else leaf


def _first_in_rank(
    ent: Entitlement, batches: Sequence[Batch], queue: Sequence[int], most_units: Callable[[Draft], int]
) -> tuple[IntArray, IntArray]:
    """The rows of a queue of batches that come first, no more than fit, in order; and the batch of each."""
    rows = np.concatenate([batches[position].rows for position in queue])
    owner = np.repeat(queue, [len(batches[position].rows) for position in queue])
    order = np.lexsort((rows, ent.columns.submit[rows], -ent.works.order_cost[rows]))
    first = order[: _most_that_fit(batches[queue[0]], most_units)]
    return rows[first], owner[first]


def _mover(ent: Entitlement, row: int) -> int:
    return row if ent.works.movable[row] else -1


def _most_that_fit(batch: Batch, most_units: Callable[[Draft], int]) -> int:
    """How many workloads of a batch could start, whatever else happens."""
    by_pool: dict[int, int] = {}
    for draft in batch.drafts:
        by_pool[draft.pool] = max(by_pool.get(draft.pool, 0), most_units(draft) // draft.units)
    return sum(by_pool.values())


def build_shapes(ent: Entitlement, ranked: Ranked) -> tuple[Shapes, IntArray]:
    """The distinct shapes in the order in which offers need them, and the shape of each offer."""
    number: dict[tuple[object, ...], int] = {}
    kept: list[Draft] = []
    shape_of_draft = np.empty(len(ranked.drafts), dtype=np.int64)
    used, first = np.unique(ranked.draft, return_index=True)
    for position in used[np.argsort(first)].tolist():
        draft = ranked.drafts[position]
        if draft.shape_key not in number:
            number[draft.shape_key] = len(kept)
            kept.append(draft)
        shape_of_draft[position] = number[draft.shape_key]
    num_nodes = len(ent.layout.names)
    masks = [np.frombuffer(draft.open_to, dtype=np.bool_) for draft in kept]
    shapes = Shapes(
        need=np.array([draft.need for draft in kept], dtype=np.int64).reshape(-1, 3).T.copy(),
        pool=np.array([draft.pool for draft in kept], dtype=np.int64),
        charged=np.array([draft.charged for draft in kept], dtype=np.bool_),
        express=np.array([draft.express for draft in kept], dtype=np.bool_),
        open_to=np.array(masks, dtype=np.bool_).reshape(len(kept), num_nodes),
    )
    return shapes, shape_of_draft[ranked.draft]


def build_offers(ent: Entitlement, ranked: Ranked, shape: IntArray, victims: Victims) -> Offers:
    """The offers as arrays, with what starting each of them saves, and which stop it follows."""
    policy, works, row = ent.snapshot.policy, ent.works, ranked.row
    gpus = works.gpus[row]
    express = _column(ranked, "express").astype(np.bool_)
    gain = works.order_cost[row] + idle_cost(policy) * gpus
    for size in np.unique(gpus[express]).tolist():
        gain[express & (gpus == size)] += express_cost(policy, size)
    levels = len(ent.layout.levels)
    segment = np.array([draft.segment for draft in ranked.drafts], dtype=np.int64).reshape(-1, 2)[ranked.draft]
    victim = {int(work): r for r, work in enumerate(victims.work)}
    return Offers(
        work=row,
        pool=_column(ranked, "pool"),
        leaf=works.leaf[row],
        gpus=gpus,
        units=_column(ranked, "units"),
        unit_tasks=_column(ranked, "unit_tasks"),
        shape=shape,
        charged=_column(ranked, "charged").astype(np.bool_),
        express=express,
        entitled=works.entitled[row] & ~works.movable[row],
        queue=ranked.queue,
        promise_cost=_column(ranked, "promise_cost"),
        gain=gain.astype(np.int64),
        required=_column(ranked, "required"),
        segment_level=segment[:, 0].copy(),
        segment_units=segment[:, 1].copy(),
        spread=_column(ranked, "spread").reshape(-1, levels),
        fewest=_column(ranked, "fewest").reshape(-1, levels),
        must_be_unfunded=_column(ranked, "must_be_unfunded").astype(np.bool_),
        victim=np.array([victim.get(work, -1) for work in row.tolist()], dtype=np.int64),
    )


def _column(ranked: Ranked, name: str) -> IntArray:
    """One field of the draft of each offer."""
    values: IntArray = np.array([getattr(draft, name) for draft in ranked.drafts], dtype=np.int64)[ranked.draft]
    return values
