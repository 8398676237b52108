"""`drf`: hierarchical dominant resource fairness on what is held now, without memory.

Ghodsi et al. (2011), "Dominant Resource Fairness"; the hierarchy as in Bhattacharya et al. (2013). The resources are the GPUs
of the pools: what a vertex holds of the pool in which it holds most is its dominant share.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from allocator.domain import Decision, Snapshot, Start, StopReason, Workload
from allocator.replay.baselines.priority_classes import began
from allocator.replay.baselines.teams import Teams, TeamsOf
from allocator.replay.baselines.yard import Placement, Resident, Yard, first_come, take
from allocator.replay.policy import Idling, plain_decision
from allocator.topology import BoolArray, IntArray
from allocator.topology.place import pool_order

Held = dict[tuple[str, int], int]
"""GPUs by vertex and pool number."""


@dataclass
class Drf:
    """From the top of the tree down, the vertex with the least dominant share for its weight is served next.

    What fits on free GPUs starts. What does not may take GPUs back as long as its vertices then hold no more than they
    deserve (the weighted max-min share of the pool, by what is asked for now), or inside the one that would: from work of
    vertices that hold more than they deserve, most first, of it what began last. Nothing is remembered, so those who were
    away get nothing for it, and a gang larger than what its project deserves waits until it fits by chance.
    """

    name: str = "drf"
    idling: Idling = Idling.ALWAYS
    _yard: Yard = field(default_factory=Yard, repr=False)
    _teams_of: TeamsOf = field(default_factory=TeamsOf, repr=False)

    def decide(self, snapshot: Snapshot, previous: Decision | None) -> Decision:
        """Serve the least served until nothing more can start."""
        yard = self._yard
        yard.see(snapshot)
        epoch = _Epoch(yard, self._teams_of(snapshot.budgets))
        starts = list(epoch.start_all())
        rows = [(victim, StopReason.SHARE, (winner,)) for victim, winner in epoch.stops.items()]
        return plain_decision(snapshot, self.name, starts, rows)

    def wake(self, snapshot: Snapshot, decision: Decision) -> int | None:
        """What was stopped may fit elsewhere."""
        return snapshot.now + 1 if decision.preemptions else None


class _Queue:
    """What waits of one leaf. Work of one kind fails together."""

    def __init__(self, yard: Yard) -> None:
        self._yard = yard
        self._kinds: dict[int, list[Workload]] = {}

    def add(self, work: Workload) -> None:
        """Behind all others of its kind."""
        self._kinds.setdefault(self._yard.kind(work), []).append(work)

    def first(self) -> Workload:
        """The one that was submitted first."""
        return min((works[0] for works in self._kinds.values()), key=first_come)

    def drop(self, work: Workload, *, kind: bool) -> None:
        """Take out the first of its kind, or all of them."""
        works = self._kinds[self._yard.kind(work)]
        del works[0]
        if kind or not works:
            del self._kinds[self._yard.kind(work)]

    def __bool__(self) -> bool:
        return bool(self._kinds)


class _Epoch:
    """One decision: what is free, who holds what, and who waits."""

    def __init__(self, yard: Yard, teams: Teams) -> None:
        self.stops: dict[str, str] = {}
        self._yard, self._teams = yard, teams
        self._free: IntArray = yard.free.copy()
        layout = yard.layout
        self._installed = [int(layout.capacity[0, layout.pool == index].sum()) for index in range(len(layout.pools))]
        self._held: Held = {}
        for resident in yard.residents.values():
            self._hold(resident.work, int(layout.pool[resident.nodes[0]]), 1)
        self._queues: dict[str, _Queue] = {}
        for work in sorted(yard.waiting, key=first_come):
            self._queues.setdefault(work.allocation, _Queue(yard)).add(work)
        self._open = self._count_open()
        self._deserved: dict[tuple[str, int], float] | None = None

    def start_all(self) -> Iterator[Start]:
        """Starts, the least served first."""
        while (leaf := self._least_served()) is not None:
            work = self._queues[leaf].first()
            placement = self._yard.place(work, self._free)
            if placement is None:
                placement = self._take_back(work)
            self._queues[leaf].drop(work, kind=placement is None)
            if not self._queues[leaf]:
                self._close(leaf)
            if placement is not None:
                take(self._free, work, placement)
                self._hold(work, int(self._yard.layout.pool[next(iter(placement))]), 1)
                yield self._yard.start(work, placement)

    def _count_open(self) -> dict[str, int]:
        """By vertex, the leaves below it with work that may start."""
        found: dict[str, int] = {}
        for leaf in self._queues:
            for vertex in self._teams.path(leaf):
                found[vertex] = found.get(vertex, 0) + 1
        return found

    def _close(self, leaf: str) -> None:
        for vertex in self._teams.path(leaf):
            self._open[vertex] -= 1

    def _least_served(self) -> str | None:
        """The leaf that is served next."""
        found: str | None = None
        while candidates := [vertex for vertex in self._teams.children.get(found, ()) if self._open.get(vertex)]:
            found = min(candidates, key=self._dominant)
        return found

    def _dominant(self, vertex: str) -> tuple[float, str]:
        """Dominant share for the weight, and the name."""
        shares = (self._held.get((vertex, pool), 0) / gpus for pool, gpus in enumerate(self._installed) if gpus)
        weight = self._teams.weight(vertex)
        return (max(shares) / weight if weight else float("inf")), vertex

    def _take_back(self, work: Workload) -> Placement | None:
        """Stop work of those who hold more than they deserve, in the first accepted pool where the claim is good."""
        if self._deserved is None:
            self._deserved = deserved(self._yard, self._teams, self._held, self._installed)
        for pool in pool_order(self._yard.layout, work):
            path = list(self._teams.path(work.allocation))
            full = [v for v in path if self._held.get((v, pool), 0) + work.gpus > self._deserved.get((v, pool), 0.0)]
            if full and full[0] == path[0]:
                continue
            mask: BoolArray = self._yard.layout.pool == pool
            victims = self._victims(path, full[0] if full else None, pool)
            found = self._yard.make_room(work, victims, self._free, mask)
            if found is not None:
                for victim in found[0]:
                    self.stops[victim.work.id] = work.id
                    self._free[:, victim.nodes] += victim.amounts
                    self._hold(victim.work, pool, -1)
                return found[1]
        return None

    def _victims(self, path: list[str], inside: str | None, pool: int) -> list[Resident]:
        """Work in a pool whose branch, where it leaves the claimant's path, holds more than it deserves; most first.

        Where a vertex on the path would come to hold more than it deserves, only work inside it makes room.
        """
        assert self._deserved is not None
        found = []
        for resident in self._yard.residents.values():
            if resident.work.id in self.stops or int(self._yard.layout.pool[resident.nodes[0]]) != pool:
                continue
            above = list(self._teams.path(resident.work.allocation))
            branch = [vertex for vertex in above if vertex not in path]
            if branch and (inside is None or inside in above):
                over = self._held.get((branch[-1], pool), 0) - self._deserved.get((branch[-1], pool), 0.0)
                if over > 0:
                    found.append((-over, -began(resident), resident.work.id, resident))
        return [resident for *_, resident in sorted(found, key=lambda one: one[:3])]

    def _hold(self, work: Workload, pool: int, sign: int) -> None:
        for vertex in self._teams.path(work.allocation):
            self._held[vertex, pool] = self._held.get((vertex, pool), 0) + sign * work.gpus


def deserved(yard: Yard, teams: Teams, held: Held, installed: list[int]) -> dict[tuple[str, int], float]:
    """The weighted max-min share of every vertex in every pool: GPUs, by what it holds and what waits."""
    demand = dict(held)
    for work in yard.waiting:
        pool = pool_order(yard.layout, work)[0] if work.pools or len(installed) > 1 else 0
        for vertex in teams.path(work.allocation):
            demand[vertex, pool] = demand.get((vertex, pool), 0) + work.gpus
    found: dict[tuple[str, int], float] = {}
    for pool, gpus in enumerate(installed):
        _share_out(teams, None, float(gpus), pool, yard.layout.pools[pool], demand, found)
    return found


def _share_out(
    teams: Teams,
    above: str | None,
    gpus: float,
    pool: int,
    name: str,
    demand: Mapping[tuple[str, int], int],
    found: dict[tuple[str, int], float],
) -> None:
    """Hand the GPUs of a vertex down to its children."""
    children = [vertex for vertex in teams.children.get(above, ()) if demand.get((vertex, pool), 0) > 0]
    wants = [float(demand[vertex, pool]) for vertex in children]
    for vertex, part in zip(children, max_min(gpus, [teams.weight(one, name) for one in children], wants), strict=True):
        found[vertex, pool] = part
        _share_out(teams, vertex, part, pool, name, demand, found)


def max_min(amount: float, weights: list[float], wants: list[float]) -> list[float]:
    """Weighted max-min shares: by weight, nobody more than he wants."""
    given = [0.0] * len(wants)
    open_ = [place for place in range(len(wants)) if weights[place] > 0]
    left = amount
    while open_:
        total = sum(weights[place] for place in open_)
        full = [place for place in open_ if wants[place] <= left * weights[place] / total]
        if not full:
            for place in open_:
                given[place] = left * weights[place] / total
            break
        for place in full:
            given[place] = wants[place]
        left -= sum(wants[place] for place in full)
        open_ = [place for place in open_ if place not in full]
    return given
