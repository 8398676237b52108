"""Meters: GPU-seconds by allocation and pool in exact integers, read every hour, with the books balanced each time."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import NamedTuple

from allocator.domain import Allocation
from allocator.entitlement.tree import build_tree
from allocator.replay.errors import broken

Key = tuple[str, str]
"""Allocation and pool."""

CHARGED, UNCHARGED, UNFUNDED, DEMAND, WAITING = range(5)
KINDS = 5
WASTE = ("lost", "restart", "checkpoint", "slow", "parked", "dead")
ROOT = ""


class HourRow(NamedTuple):
    """What an allocation, or with an empty name the whole pool, got in a span of at most an hour; amounts in GPU-seconds.

    `share` is what its share of the schedulable GPUs comes to, `unfunded` is the uncharged time of
    work with a min runtime, `demand` counts running and waiting work with a min runtime,
    `waiting` all that waits; `owed` is the smaller of share and demand. The waste of a run is booked when the run ends.
    `idle` stands in the rows of whole pools.
    """

    start: int
    seconds: int
    allocation: str
    pool: str
    project: bool
    leaf: bool
    share: int
    owed: int
    charged: int
    uncharged: int
    unfunded: int
    demand: int
    waiting: int
    lost: int
    restart: int
    checkpoint: int
    slow: int
    parked: int
    dead: int
    idle: int


class Books:
    """The budget tree as far as meters need it: paths, shares, and which vertices are projects."""

    def __init__(self, budgets: tuple[Allocation, ...], pools: tuple[str, ...]) -> None:
        tree = build_tree(budgets, pools)
        self.leaves = frozenset(tree.ids[v] for v in range(len(tree)) if v and tree.is_leaf[v])
        self.paths = {tree.ids[v]: tuple(tree.ids[u] for u in tree.path(v)) for v in range(1, len(tree))}
        self.shares: dict[Key, Fraction] = {
            (tree.ids[v], pool): tree.path_share(v, p) for v in range(1, len(tree)) for p, pool in enumerate(pools)
        }
        funding = (tree.funding_path(v) for v in range(1, len(tree)) if tree.is_leaf[v])
        self.projects = frozenset(tree.ids[path[0]] for path in funding if path)


class Meters:
    """Rates that hold until they change, and what has come together since the last reading."""

    def __init__(self, start: int, pools: tuple[str, ...], books: Books) -> None:
        self.books = books
        self._pools = pools
        self._since = start
        self._rate: dict[Key, list[int]] = {}
        self._sum: dict[Key, list[int]] = {}
        self._last: dict[Key, int] = {}
        self._waste: dict[Key, list[int]] = {}
        self._fleet = dict.fromkeys(pools, (0, 0))
        self._fleet_sum = {pool: [0, 0] for pool in pools}
        self._fleet_last = start

    def change(self, now: int, key: Key, kind: int, gpus: int) -> None:
        """From now on there are `gpus` more of a kind."""
        if key not in self._rate:
            self._rate[key], self._sum[key], self._last[key] = [0] * KINDS, [0] * KINDS, now
        self._settle(now, key)
        self._rate[key][kind] += gpus

    def see_fleet(self, now: int, schedulable: Mapping[str, int], idle: Mapping[str, int]) -> None:
        """From now on so many GPUs are schedulable, and idle."""
        span = now - self._fleet_last
        for pool in self._pools:
            if span:
                before, total = self._fleet[pool], self._fleet_sum[pool]
                total[0] += before[0] * span
                total[1] += before[1] * span
            self._fleet[pool] = (schedulable[pool], idle[pool])
        self._fleet_last = now

    def waste(self, key: Key, amounts: tuple[int, ...]) -> None:
        """Book what a run threw away, in the order of WASTE."""
        total = self._waste.setdefault(key, [0] * len(WASTE))
        for index, amount in enumerate(amounts):
            total[index] += amount

    def read(self, now: int) -> list[HourRow]:
        """Rows of the span since the last reading.

        Raises
        ------
        ReplayError
            If what was assigned and what was idle do not add up to what was schedulable.
        """
        for key in self._rate:
            self._settle(now, key)
        self.see_fleet(now, *({pool: self._fleet[pool][i] for pool in self._pools} for i in (0, 1)))
        self._balance(now)
        rows = [row for pool in self._pools for row in self._rows(pool, now)] if now > self._since else []
        for total in (*self._sum.values(), *self._waste.values(), *self._fleet_sum.values()):
            total[:] = [0] * len(total)
        self._since = now
        return rows

    def _settle(self, now: int, key: Key) -> None:
        span = now - self._last[key]
        if span:
            rate, total = self._rate[key], self._sum[key]
            for kind in range(KINDS):
                total[kind] += rate[kind] * span
            self._last[key] = now

    def _balance(self, now: int) -> None:
        for pool in self._pools:
            assigned = sum(total[CHARGED] + total[UNCHARGED] for (_, where), total in self._sum.items() if where == pool)
            schedulable, idle = self._fleet_sum[pool]
            if assigned + idle != schedulable:
                what = (
                    f"assigned {assigned} + idle {idle} are not the {schedulable} schedulable GPU-seconds since {self._since}"
                )
                raise broken(now, f"pool {pool}", what)

    def _rows(self, pool: str, now: int) -> list[HourRow]:
        """One row for each vertex with something to tell, and one for the pool."""
        figures: dict[str, list[int]] = {ROOT: [0] * (KINDS + len(WASTE))}
        for allocation, where in sorted({*self._sum, *self._waste}):
            if where == pool:
                own = [*self._sum.get((allocation, pool), [0] * KINDS), *self._waste.get((allocation, pool), [0] * len(WASTE))]
                if any(own):
                    for vertex in (*self.books.paths.get(allocation, (allocation,)), ROOT):
                        total = figures.setdefault(vertex, [0] * len(own))
                        total[:] = [a + b for a, b in zip(total, own, strict=True)]
        return [self._row(vertex, pool, now, total) for vertex, total in sorted(figures.items())]

    def _row(self, vertex: str, pool: str, now: int, total: list[int]) -> HourRow:
        schedulable, idle = self._fleet_sum[pool]
        share = self.books.shares.get((vertex, pool), Fraction(vertex == ROOT)) * schedulable
        part = share.numerator // share.denominator
        charged, uncharged, unfunded, demand, waiting, *waste = total
        return HourRow(
            start=self._since,
            seconds=now - self._since,
            allocation=vertex,
            pool=pool,
            project=vertex in self.books.projects,
            leaf=vertex in self.books.leaves,
            share=part,
            owed=min(part, demand),
            charged=charged,
            uncharged=uncharged,
            unfunded=unfunded,
            demand=demand,
            waiting=waiting,
            idle=idle if vertex == ROOT else 0,
            **dict(zip(WASTE, waste, strict=True)),
        )
