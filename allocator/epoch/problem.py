"""The compiled epoch: plain arrays that every engine solves. Built by `compile_epoch`, read-only afterwards.

Words used here and in `docs/formulation.md`:

offer     one way to start one workload: a pool and a mode (charged, express, uncharged)
unit      what an offer places on one node as a whole: a task, or the whole gang where one node is required
shape     the needs of a unit together with the nodes that may take it
class     interchangeable nodes: same cell, same free room, same stoppable residents, open to the same shapes
cell      the finest domain that any cost or rule looks at; a class lies in one cell
victim    a running workload that may be stopped by choice
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from allocator.entitlement.curve import Curve
from allocator.topology.layout import BoolArray, IntArray

Resident = tuple[int, tuple[int, int, int]]
"""A victim on a class, and the GPUs, CPUs and GiB that it holds on each node of it."""


@dataclass(frozen=True, slots=True, eq=False)
class Shapes:
    """`need` has shape (3, num_shapes): GPUs, CPUs, GiB of one unit. `open_to[s, n]`: node n may take shape s."""

    need: IntArray
    pool: IntArray
    charged: BoolArray
    express: BoolArray
    open_to: BoolArray


@dataclass(frozen=True, slots=True, eq=False)
class Offers:
    """One row per offer, shape (num_offers,); levels run along the second axis of the spread arrays.

    `work` is the row in the work table, `queue` numbers the offers that differ in nothing but their rank: inside one queue
    earlier offers start first. `promise_cost` is in GPU-seconds (0: draws on no budget). `gain` is what starting saves
    whatever the shares say: waiting (order, express) and idle GPUs. `required` is a level index or -1, `segment_level`
    likewise. `entitled` marks offers of entitled work. `spread[j, l]` is the cost of a further domain of level l beyond
    `fewest[j, l]`. `must_be_unfunded` marks
    uncharged offers of work that could be funded alone: they stand only if this decision leaves too little. `victim` is the
    victim whose stop the start follows where running work moves, -1 for work that waits.
    Costs are in 1/1000 GPU-second.
    """

    work: IntArray
    pool: IntArray
    leaf: IntArray
    gpus: IntArray
    units: IntArray
    unit_tasks: IntArray
    shape: IntArray
    charged: BoolArray
    express: BoolArray
    entitled: BoolArray
    queue: IntArray
    promise_cost: IntArray
    gain: IntArray
    required: IntArray
    segment_level: IntArray
    segment_units: IntArray
    spread: IntArray
    fewest: IntArray
    must_be_unfunded: BoolArray
    victim: IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Victims:
    """Running work that may be stopped. `cost` is what the stop costs whatever the shares say (lost work, waiting, idle
    GPUs, less the spread it takes away), in 1/1000 GPU-second. `nodes[r]` lists its nodes, `need[r]` its GPUs, CPUs and GiB
    on each, shape (3, len(nodes[r]))."""

    work: IntArray
    pool: IntArray
    leaf: IntArray
    gpus: IntArray
    charged: BoolArray
    licensed: BoolArray
    cost: IntArray
    nodes: tuple[IntArray, ...]
    need: tuple[IntArray, ...]


class Holdings(NamedTuple):
    """Who lies where, one entry for each node of each victim: `need`, shape (3, num_entries), of node `node`."""

    victim: IntArray
    node: IntArray
    need: IntArray

    def add_to(self, room: IntArray, which: BoolArray | slice = slice(None)) -> None:
        """Add what some of the entries hold to what each node has, shape (3, num_nodes)."""
        node = self.node[which]
        for row, need in zip(room, self.need, strict=True):
            np.add.at(row, node, need[which])


def holdings(victims: Victims) -> Holdings:
    """What the victims hold, by victim."""
    count = np.array([len(nodes) for nodes in victims.nodes], dtype=np.int64)
    return Holdings(
        np.repeat(np.arange(len(count)), count),
        np.concatenate([np.zeros(0, dtype=np.int64), *victims.nodes]),
        np.concatenate([np.zeros((3, 0), dtype=np.int64), *victims.need], axis=1),
    )


def lack_room(victims: Victims, room: IntArray) -> BoolArray:
    """Whether each victim lacks room on some of its nodes, given what each node has, shape (3, num_nodes)."""
    short, held = np.zeros(len(victims.work), dtype=np.bool_), holdings(victims)
    short[held.victim[(room[:, held.node] < held.need).any(axis=0)]] = True
    return short


@dataclass(frozen=True, slots=True, eq=False)
class Promotions:
    """Uncharged runs that could be funded alone: whoever keeps one promotes it, unless this decision leaves too little.
    `victim` is their row among the victims (-1: none)."""

    work: IntArray
    pool: IntArray
    leaf: IntArray
    gpus: IntArray
    victim: IntArray
    promise_cost: IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Classes:
    """One row per class. `free` (3, num_classes) is what one node has left while every victim stays; `nodes[k]` lists the
    nodes. A class of several nodes has at most one resident, and then no free GPU, so that counts always decode."""

    nodes: tuple[IntArray, ...]
    size: IntArray
    cell: IntArray
    free: IntArray
    whole: IntArray
    residents: tuple[tuple[Resident, ...], ...]


@dataclass(frozen=True, slots=True, eq=False)
class FundingRow:
    """Ordinary promises of this decision at one funding vertex and pool add up to at most `available` GPU-seconds."""

    vertex: int
    pool: int
    available: int
    offers: IntArray
    promotions: IntArray


@dataclass(frozen=True, slots=True, eq=False)
class LimitRow:
    """GPUs held at once under one vertex, over all pools: `kept` by what no decision stops (`kept_charged` of them charged
    or such that nobody may stop them now), plus victims, plus starts."""

    vertex: int
    limit: int
    kept: int
    kept_charged: int
    offers: IntArray
    victims: IntArray


@dataclass(frozen=True, slots=True, eq=False)
class ShareTerm:
    """Unfairness of one vertex in one pool: `curve` of its charged GPUs, `base` of them while every victim stays."""

    vertex: int
    pool: int
    curve: Curve
    base: int
    offers: IntArray
    victims: IntArray
    promotions: IntArray


@dataclass(frozen=True, slots=True, eq=False)
class WholeDomain:
    """A domain of several nodes that was wholly free: breaking it up costs by GPU. `placed` counts what started at `now`."""

    level: int
    nodes: IntArray
    capacity: int
    placed: int


@dataclass(frozen=True, slots=True, eq=False)
class EpochProblem:
    """All that an engine needs. Objectives are relative to keep.

    `cell_domain` has shape (num_levels, num_cells); `node_class` is -1 for nodes where nothing can be placed.
    `whole_weight[n]` is how often node n counts as wholly free just before now, 0 if it was not; `whole_placed` the GPUs
    that start there at this instant. `late` is what ordinary work that started at this instant holds, shape (3, num_nodes):
    express starts do not need the place of charged work for its sake. `step_gpus` are the GPU-seconds of one planning step.
    """

    num_levels: int
    capacity: IntArray
    free: IntArray
    node_pool: IntArray
    node_domain: IntArray
    node_class: IntArray
    cell_domain: IntArray
    cell_pool: IntArray
    shapes: Shapes
    offers: Offers
    victims: Victims
    promotions: Promotions
    classes: Classes
    funding: tuple[FundingRow, ...]
    limits: tuple[LimitRow, ...]
    shares: tuple[ShareTerm, ...]
    whole_weight: IntArray
    whole_placed: IntArray
    whole_domains: tuple[WholeDomain, ...]
    fragmentation_cost: int
    express_room: IntArray
    late: IntArray
    max_stops: int | None
    step_gpus: int
    names: tuple[str, ...]


def charged_twins(offers: Offers) -> dict[int, int]:
    """For each uncharged offer of fundable work, the charged offer of the same workload in the same pool."""
    place = offers.work * (int(offers.pool.max(initial=0)) + 1) + offers.pool
    charged, uncharged = (offers.charged & ~offers.express).nonzero()[0], offers.must_be_unfunded.nonzero()[0]
    twin = dict(zip(place[charged].tolist(), charged.tolist(), strict=True))
    pairs = zip(uncharged.tolist(), place[uncharged].tolist(), strict=True)
    return {j: twin[own] for j, own in pairs if own in twin}


def restarts_of(offers: Offers) -> dict[int, list[int]]:
    """For each victim that may move, the offers that start it elsewhere."""
    found: dict[int, list[int]] = {}
    for j in (offers.victim >= 0).nonzero()[0].tolist():
        found.setdefault(int(offers.victim[j]), []).append(j)
    return found


def own_shapes(offers: Offers) -> dict[int, set[int]]:
    """For each victim that may move, the shapes that nothing but its restarts has: their units on a node are its own."""
    users: dict[int, set[int]] = {}
    for shape, victim in zip(offers.shape.tolist(), offers.victim.tolist(), strict=True):
        users.setdefault(shape, set()).add(victim)
    found: dict[int, set[int]] = {}
    for shape, victims in users.items():
        if len(victims) == 1 and (victim := min(victims)) >= 0:
            found.setdefault(victim, set()).add(shape)
    return found


def with_own_shapes(problem: EpochProblem, victims: Iterable[int]) -> EpochProblem:
    """The same problem, where each restart of the given victims has a shape of its own.

    Shapes that are shared make the model small; but a gang may move one task and leave the other, and only where its units are
    counted apart can a rule tell what it takes of the nodes it leaves from what others take.
    """
    shapes, offers, wanted = problem.shapes, problem.offers, set(victims)
    restarts = [j for j in (offers.victim >= 0).nonzero()[0].tolist() if int(offers.victim[j]) in wanted]
    if not restarts:
        return problem
    columns = np.concatenate([np.arange(len(shapes.pool)), offers.shape[restarts]])
    shape = offers.shape.copy()
    shape[restarts] = len(shapes.pool) + np.arange(len(restarts))
    wider = Shapes(
        need=shapes.need[:, columns], pool=shapes.pool[columns], charged=shapes.charged[columns],
        express=shapes.express[columns], open_to=shapes.open_to[columns],
    )  # fmt: skip
    return replace(problem, shapes=wider, offers=replace(offers, shape=shape))
