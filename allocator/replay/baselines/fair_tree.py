"""`fair_tree`: Slurm's multifactor priority with Fair Tree, and backfill by time limits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from allocator.domain import Decision, Snapshot, Workload
from allocator.replay.baselines.easy import backfill
from allocator.replay.baselines.teams import Teams, TeamsOf
from allocator.replay.baselines.yard import Yard
from allocator.replay.policy import Idling, plain_decision

HALF_LIFE = 7 * 86_400
"""Slurm's default for PriorityDecayHalfLife."""


@dataclass
class FairTree:
    """Users are ranked by the tree, and the rank decides; then priority, then submission. Nobody is stopped for shares.

    At each level siblings come in the order of share over usage, best first, and a whole subtree comes before the next one.
    Usage is GPU time, whoever asked for it, and fades with a half-life. It is counted here from decision to decision, from
    what ran: a run that begins or ends in between counts to the next decision.
    """

    name: str = "fair_tree"
    idling: Idling = Idling.ALWAYS
    half_life: int = HALF_LIFE
    _usage: dict[str, float] = field(default_factory=dict, repr=False)
    _held: dict[str, int] = field(default_factory=dict, repr=False)
    _seen: int | None = field(default=None, repr=False)
    _yard: Yard = field(default_factory=Yard, repr=False)
    _teams_of: TeamsOf = field(default_factory=TeamsOf, repr=False)

    def decide(self, snapshot: Snapshot, previous: Decision | None) -> Decision:
        """Rank, then backfill in that order."""
        yard, teams = self._yard, self._teams_of(snapshot.budgets)
        yard.see(snapshot)
        self._count_usage(snapshot.now)
        starts = []
        if yard.waiting:
            rank = self._rank(teams)
            last = len(rank)

            def key(work: Workload) -> tuple[int, int, int, str]:
                return rank.get(work.allocation, last), -work.priority, work.submit_time, work.id

            planned = list(backfill(yard, sorted(yard.waiting, key=key), yard.free.copy()))
            starts = [yard.start(*one) for one in planned]
            for work, _ in planned:
                self._held[work.allocation] = self._held.get(work.allocation, 0) + work.gpus
        return plain_decision(snapshot, self.name, starts)

    def _count_usage(self, now: int) -> None:
        """Let usage fade since the last decision, and add what was held."""
        span = 0 if self._seen is None else now - self._seen
        fading = 0.5 ** (span / self.half_life)
        self._usage = {leaf: amount * fading for leaf, amount in self._usage.items()}
        for leaf, gpus in self._held.items():
            self._usage[leaf] = self._usage.get(leaf, 0.0) + gpus * span
        self._seen, self._held = now, {}
        for resident in self._yard.residents.values():
            leaf = resident.work.allocation
            self._held[leaf] = self._held.get(leaf, 0) + resident.work.gpus

    def _rank(self, teams: Teams) -> dict[str, int]:
        """Place of every leaf, 0 first."""
        usage: dict[str, float] = {}
        for leaf in sorted(self._usage):
            for vertex in teams.path(leaf):
                usage[vertex] = usage.get(vertex, 0.0) + self._usage[leaf]
        return {leaf: place for place, leaf in enumerate(_walk(teams, None, usage))}

    def wake(self, snapshot: Snapshot, decision: Decision) -> int | None:
        """Ranks change with time, but nothing starts before something ends."""
        return None


def _walk(teams: Teams, above: str | None, usage: dict[str, float]) -> Iterator[str]:
    """Leaves in the order of the tree: at each level the vertex with most share to its usage first."""

    def level(vertex: str) -> tuple[float, str]:
        share = teams.weight(vertex)
        return (usage.get(vertex, 0.0) / share if share else float("inf")), vertex

    for vertex in sorted(teams.children.get(above, ()), key=level):
        if vertex in teams.children:
            yield from _walk(teams, vertex, usage)
        else:
            yield vertex
