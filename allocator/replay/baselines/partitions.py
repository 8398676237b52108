"""`partitions`: every project has nodes of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from allocator.domain import Decision, Snapshot, Workload
from allocator.replay.baselines.easy import backfill
from allocator.replay.baselines.teams import Teams, TeamsOf
from allocator.replay.baselines.yard import Yard
from allocator.replay.policy import Idling, plain_decision
from allocator.topology import BoolArray, Layout


@dataclass
class Partitions:
    """Each pool is cut into partitions by the teams' shares, in the order of the nodes; inside one, EASY backfill.

    A team's work runs on its own nodes only, so others' idle nodes are of no use to it, and a gang larger than every
    partition of its team never starts. After a change of budgets the nodes are dealt out anew; what runs stays.
    """

    name: str = "partitions"
    idling: Idling = Idling.ALWAYS
    _yard: Yard = field(default_factory=Yard, repr=False)
    _teams_of: TeamsOf = field(default_factory=TeamsOf, repr=False)
    _dealt: tuple[Teams, Layout, dict[str, BoolArray]] | None = field(default=None, repr=False)

    def __getstate__(self) -> dict[str, object]:
        """Without the nodes of the teams: they follow from the next snapshot."""
        return {**self.__dict__, "_dealt": None}

    def decide(self, snapshot: Snapshot, previous: Decision | None) -> Decision:
        """Backfill in each partition by itself."""
        yard, teams = self._yard, self._teams_of(snapshot.budgets)
        yard.see(snapshot)
        queues: dict[str, list[Workload]] = {}
        for work in yard.waiting:
            queues.setdefault(teams.team_of(work.allocation), []).append(work)
        if not queues:
            return plain_decision(snapshot, self.name)
        masks, free = self._cut(teams), yard.free.copy()
        nothing = np.zeros(len(yard.layout.names), dtype=bool)
        starts = []
        for team in sorted(queues):
            planned = backfill(yard, queues[team], free, masks.get(team, nothing))
            starts += [yard.start(*one) for one in planned]
        return plain_decision(snapshot, self.name, starts)

    def _cut(self, teams: Teams) -> dict[str, BoolArray]:
        """The nodes of each team, shape (num_nodes,); dealt out again when budgets or nodes have changed."""
        layout = self._yard.layout
        if self._dealt is not None and self._dealt[0] is teams and self._dealt[1] is layout:
            return self._dealt[2]
        masks = {team: np.zeros(len(layout.names), dtype=bool) for team in teams.teams}
        for index, pool in enumerate(layout.pools):
            nodes = np.flatnonzero(layout.pool == index)
            counts = deal(len(nodes), [teams.part(team, pool) for team in teams.teams])
            begin = 0
            for team, count in zip(teams.teams, counts, strict=True):
                masks[team][nodes[begin : begin + count]] = True
                begin += count
        self._dealt = (teams, layout, masks)
        return masks

    def wake(self, snapshot: Snapshot, decision: Decision) -> int | None:
        """Time alone starts nothing."""
        return None


def deal(count: int, parts: Sequence[float]) -> list[int]:
    """So many things by parts: whole numbers, the largest remainders first, among equals the first."""
    total = sum(parts)
    if not total:
        return [0] * len(parts)
    exact = [count * part / total for part in parts]
    dealt = [int(one) for one in exact]
    order = sorted(range(len(parts)), key=lambda place: (dealt[place] - exact[place], place))
    for place in order[: count - sum(dealt)]:
        dealt[place] += 1
    return dealt
