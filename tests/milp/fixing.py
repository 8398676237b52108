"""Whether a model allows a given solution: its choices and counts are fixed, all else is left to the solver."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
import pulp
from ortools.sat.python import cp_model

from allocator.domain import Decision
from allocator.entitlement import Entitlement
from allocator.epoch import EpochProblem, EpochSolution
from allocator.models.cpsat import solver as cpsat
from allocator.models.milp import solver as milp
from allocator.models.milp.highs import has_solution
from allocator.models.queries import counts_of
from allocator.topology.layout import GPUS


def _fixed(variables: Any, problem: EpochProblem, solution: EpochSolution) -> list[tuple[Any, int]] | None:
    """Variables with their values; None where the model has no variable for something that the solution does."""
    count, units = counts_of(problem, solution)
    places = {(j, cell) for j, cells in enumerate(variables.units) for cell in cells}
    if not (count.keys() <= variables.count.keys() and units.keys() <= places):
        return None
    pairs = [(variable, int(j in solution.starts)) for j, variable in enumerate(variables.start)]
    pairs += [(variable, int(r in solution.stops)) for r, variable in enumerate(variables.stop)]
    pairs += [(variable, int(u in solution.promotions)) for u, variable in enumerate(variables.promote)]
    pairs += [(variable, count[key]) for key, variable in variables.count.items()]
    return pairs + [(variables.units[j][cell], units[j, cell]) for j, cell in sorted(places)]


def milp_value(
    problem: EpochProblem, solution: EpochSolution, claims: Sequence[int] = (), displaced: Sequence[int] = ()
) -> float | None:
    """What the MILP says that a solution is worth; None if it does not allow it."""
    model = milp.build(problem, claims, displaced)
    pairs = _fixed(model.variables, problem, solution)
    if pairs is None:
        return None
    for variable, value in pairs:
        if not variable.lowBound <= value <= variable.upBound:
            return None
        variable.lowBound = variable.upBound = value
    milp.run(model, seconds=60.0)
    if not has_solution(model.rows):
        return None
    return float((pulp.value(model.rows.objective) or 0.0) * model.objective.unit + model.objective.constant)


def cpsat_value(
    problem: EpochProblem, solution: EpochSolution, claims: Sequence[int] = (), displaced: Sequence[int] = ()
) -> float | None:
    """The same for the reference model."""
    model, variables = cpsat.build(problem, None, claims, displaced)
    pairs = _fixed(variables, problem, solution)
    if pairs is None:
        return None
    for variable, value in pairs:
        model.add(variable == value)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    return solver.objective_value if solver.solve(model) == cp_model.OPTIMAL else None


def solution_of(ent: Entitlement, problem: EpochProblem, answer: Decision) -> EpochSolution | None:
    """A decision in the words of the problem; None where it does something that is not on offer."""
    rows = {name: row for row, name in enumerate(problem.names)}
    forced = {name for name, row in rows.items() if ent.works.forced[row]}
    starts = {_offer(problem, ent, rows[row.workload], row): row for row in answer.starts}
    stops = _indices(problem.victims.work, [rows[row.workload] for row in answer.preemptions if row.workload not in forced])
    promotions = _indices(problem.promotions.work, [rows[row.workload] for row in answer.promotions])
    if None in starts or stops is None or promotions is None:
        return None
    placed = {
        j: {ent.layout.index[node]: tasks // int(problem.offers.unit_tasks[j]) for node, tasks in row.placement.items()}
        for j, row in starts.items()
        if j is not None
    }
    if any(sum(placement.values()) != problem.offers.units[j] for j, placement in placed.items()):
        return None
    return EpochSolution(placed, stops, promotions)


def _offer(problem: EpochProblem, ent: Entitlement, row: int, start: Any) -> int | None:
    offers = problem.offers
    pools = {int(ent.layout.pool[ent.layout.index[node]]) for node in start.placement}
    found = [
        int(j)
        for j in np.flatnonzero(offers.work == row)
        if pools == {int(offers.pool[j])} and offers.charged[j] == start.charged and offers.express[j] == start.express
    ]
    return found[0] if found else None


def _indices(works: np.ndarray, rows: Sequence[int]) -> frozenset[int] | None:
    found = frozenset(np.flatnonzero(np.isin(works, rows)).tolist())
    return found if len(found) == len(rows) else None


def random_solution(problem: EpochProblem, rng: Random) -> EpochSolution:
    """Some starts, stops and promotions, with no regard to the rules but that units lie on nodes that may take them."""
    starts: dict[int, dict[int, int]] = {}
    for j in range(len(problem.offers.work)):
        if rng.random() < 0.35:
            placement = _random_placement(problem, j, rng)
            if placement:
                starts[j] = placement
    return EpochSolution(
        starts=starts,
        stops=frozenset(r for r in range(len(problem.victims.work)) if rng.random() < 0.5),
        promotions=frozenset(u for u in range(len(problem.promotions.work)) if rng.random() < 0.5),
    )


def _random_placement(problem: EpochProblem, j: int, rng: Random) -> dict[int, int]:
    shape = int(problem.offers.shape[j])
    open_to = problem.shapes.open_to[shape] & (problem.node_class >= 0)
    fitting = np.flatnonzero(open_to & (problem.capacity[GPUS] >= problem.shapes.need[GPUS, shape])).tolist()
    if not fitting:
        return {}
    return dict(Counter(rng.choice(fitting) for _ in range(int(problem.offers.units[j]))))
