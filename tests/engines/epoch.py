"""One compiled epoch, asked by the names of its workloads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from ortools.sat.python import cp_model

from allocator.domain import Snapshot
from allocator.entitlement import entitle
from allocator.epoch import EpochSolution, compile_epoch
from allocator.models.cpsat import solver as cpsat
from allocator.models.protocol import EngineResult, Limits

FREE = "free:"
"""Before a name: the uncharged way to start it."""


class Epoch:
    """A snapshot, compiled. Ways to start a workload are named `job`, `free:job` (uncharged) and `job@pool`."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.ent = entitle(snapshot.canonical())
        self.problem = compile_epoch(self.ent, all_offers=True)
        self._row = {name: row for row, name in enumerate(self.problem.names)}

    def offer(self, name: str) -> int:
        """The offer of that name; of several pools the first."""
        name, _, pool = name.partition("@")
        offers = self.problem.offers
        found = (offers.work == self._row[name.removeprefix(FREE)]) & (offers.charged != name.startswith(FREE))
        if pool:
            found &= offers.pool == self.ent.layout.pools.index(pool)
        return int(np.flatnonzero(found)[0])

    def victim(self, name: str) -> int:
        """The victim of that name."""
        return int(np.flatnonzero(self.problem.victims.work == self._row[name])[0])

    def promotion(self, name: str) -> int:
        """The promotion of that name."""
        return int(np.flatnonzero(self.problem.promotions.work == self._row[name])[0])

    def value(
        self,
        starts: Sequence[str] = (),
        stops: Sequence[str] = (),
        promotions: Sequence[str] = (),
        *,
        claims: Sequence[str] = (),
        displaced: Sequence[str] = (),
    ) -> int | None:
        """The least value of a decision that does exactly this, wherever the starts lie; None if the model forbids it."""
        model, variables = cpsat.build(
            self.problem, None, [self.offer(name) for name in claims], [self.victim(name) for name in displaced]
        )
        chosen = (
            (variables.start, {self.offer(name) for name in starts}),
            (variables.stop, {self.victim(name) for name in stops}),
            (variables.promote, {self.promotion(name) for name in promotions}),
        )
        for row, ones in chosen:
            for index, variable in enumerate(row):
                model.add(variable == int(index in ones))
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        status = solver.solve(model)
        assert status in (cp_model.OPTIMAL, cp_model.INFEASIBLE)
        return round(solver.objective_value) if status == cp_model.OPTIMAL else None

    def best(self) -> EngineResult:
        """What the exact engine makes of it."""
        return cpsat.solve(self.problem, Limits(60.0))

    def named(self, result: EngineResult) -> dict[str, dict[str, int]]:
        """What an engine does, by names: the nodes of every start, and `-name` for every stop."""
        names, nodes, solution = self.problem.names, self.ent.layout.names, result.solution or EpochSolution()
        found = {
            names[self.problem.offers.work[j]]: {nodes[node]: units for node, units in sorted(placement.items())}
            for j, placement in solution.starts.items()
        }
        return found | {f"-{names[self.problem.victims.work[r]]}": {} for r in solution.stops}
