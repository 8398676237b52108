"""One method per hard rule, under the name it has in the formulation, the verifier and the tests."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from math import gcd

import numpy as np
import pulp
from pulp import LpAffineExpression as Linear

from allocator.epoch.afterthoughts import gives_way
from allocator.epoch.problem import EpochProblem, LimitRow, own_shapes, restarts_of
from allocator.models.milp.variables import Variables, range_of, total
from allocator.models.queries import binding_resources, by_value, twin_rows
from allocator.topology.layout import CPUS, GPUS, MEMORY, IntArray

Reason = tuple[Linear, int]
"""An expression and the least value of it that makes a stop right."""

LARGEST_COEFFICIENT = 64
"""Rows of larger coefficients are scaled down."""


class Constraints:
    """Adds the rules to the model; `add_all` is its table of contents."""

    def __init__(
        self, model: pulp.LpProblem, problem: EpochProblem, variables: Variables, claims: Sequence[int] = (),
        displaced: Sequence[int] = (),
    ) -> None:  # fmt: skip
        self._model, self._problem, self._variables = model, problem, variables
        self._claims, self._displaced = claims, displaced
        self._shortage: dict[tuple[int, int], pulp.LpVariable] = {}
        self._room: dict[int, dict[int, pulp.LpVariable]] = {}
        self._gives_way = cache(partial(gives_way, problem))
        self._restarts, self._own_shapes = restarts_of(problem.offers), own_shapes(problem.offers)
        self._promotion_of = {int(r): u for u, r in enumerate(problem.promotions.victim) if r >= 0}

    def add_all(self) -> None:
        """All rules, in the order of the formulation."""
        self._one_offer_per_workload()
        self._relocation()
        self._gang()
        self._topology()
        self._segment()
        self._placement()
        self._capacity()
        self._funding()
        self._funded_is_charged()
        self._gpu_limit()
        self._express()
        self._max_preemptions()
        self._licence()
        self._charged_first()
        self._unallocated_last()

    def _add(self, row: pulp.LpConstraint) -> None:
        self._model.addConstraint(_scaled(row))

    def _where(self, literal: pulp.LpVariable, expression: Linear, least: int) -> None:
        """An expression is at least `least` where the literal is 1; the bounds of its variables give the tightest big-M."""
        low, _ = range_of(expression, expression.constant)
        if low < least:
            self._add(expression - (least - low) * literal >= low)

    def _one_offer_per_workload(self) -> None:
        """Ensures that a workload starts in one way at most."""
        for offers in by_value(self._problem.offers.work):
            if len(offers) > 1:
                self._add(total([self._variables.start[j] for j in offers]) <= 1)

    def _relocation(self) -> None:
        """Ensures that running work starts elsewhere only if it is stopped."""
        for victim, offers in self._restarts.items():
            self._add(total([self._variables.start[j] for j in offers]) <= 1 * self._variables.stop[victim])

    def _gang(self) -> None:
        """Ensures that all units of a gang run, or none."""
        for j, cells in enumerate(self._variables.units):
            if self._problem.offers.units[j] > 1:
                self._add(total(list(cells.values())) == int(self._problem.offers.units[j]) * self._variables.start[j])

    def _topology(self) -> None:
        """Ensures that a gang with a required level lies inside one domain of that level."""
        offers = self._problem.offers
        for j in np.flatnonzero((offers.required >= 0) & (offers.units > 1)):
            chosen = []
            for cells in self._cells_by_domain(int(j), int(offers.required[j])).values():
                inside = self._variables.boolean()
                chosen.append(inside)
                self._add(total(cells) == int(offers.units[j]) * inside)
            self._add(total(chosen) == 1 * self._variables.start[j])

    def _segment(self) -> None:
        """Ensures that every domain of the segment level holds a multiple of the segment, but for one remainder.

        All domains add up to the gang, so the remainder is what the gang leaves after whole segments.
        """
        offers = self._problem.offers
        for j in np.flatnonzero(offers.segment_level >= 0):
            size, odd = int(offers.segment_units[j]), []
            left = int(offers.units[j]) % size
            for cells in self._cells_by_domain(int(j), int(offers.segment_level[j])).values():
                held = size * self._variables.integer(int(offers.units[j]) // size)
                if left:
                    odd.append(self._variables.boolean())
                    held = held + left * odd[-1]
                self._add(total(cells) == held)
            if left:
                self._add(total(odd) == 1 * self._variables.start[j])

    def _cells_by_domain(self, j: int, level: int) -> dict[int, list[pulp.LpVariable]]:
        found: dict[int, list[pulp.LpVariable]] = {}
        for cell, units in self._variables.units[j].items():
            found.setdefault(int(self._problem.cell_domain[level, cell]), []).append(units)
        return found

    def _placement(self) -> None:
        """Ensures that the units on the classes are those of what starts, in every cell."""
        problem, variables = self._problem, self._variables
        offers = problem.offers
        for s in range(len(problem.shapes.pool)):
            own = [int(j) for j in np.flatnonzero(offers.shape == s)]
            counts = [(k, variables.count[s, k]) for k in range(len(problem.classes.size)) if (s, k) in variables.count]
            started = total([variables.start[j] for j in own], [int(offers.units[j]) for j in own])
            self._add(total([count for _, count in counts]) == started)
            gangs = [j for j in own if offers.units[j] > 1]
            if gangs:
                self._gangs_in_cells(gangs, counts)

    def _gangs_in_cells(self, gangs: list[int], counts: list[tuple[int, pulp.LpVariable]]) -> None:
        by_cell: dict[int, list[pulp.LpVariable]] = {}
        for k, count in counts:
            by_cell.setdefault(int(self._problem.classes.cell[k]), []).append(count)
        for cell, here in by_cell.items():
            units = [self._variables.units[j][cell] for j in gangs if cell in self._variables.units[j]]
            self._add(total(units) <= total(here))

    def _capacity(self) -> None:
        """Ensures that what starts on a class fits what is free there and what stops leave.

        On a class of several nodes the sizes form a chain of divisors, so it is enough that, for each size, the units at
        least as large fit the room cut to multiples of it.
        """
        for k in range(len(self._problem.classes.size)):
            if self._problem.classes.size[k] == 1:
                self._single_node(k)
            else:
                self._many_nodes(k)

    def _single_node(self, k: int) -> None:
        problem, variables = self._problem, self._variables
        units, shapes = variables.units_on(k, variables.shapes_on(k))
        residents = problem.classes.residents[k]
        for resource in binding_resources(problem, k, shapes):
            need = [int(problem.shapes.need[resource, s]) for s in shapes]
            free = int(problem.classes.free[resource, k])
            used = total(units, need)
            if range_of(used)[1] > free:
                leaves = total([variables.stop[r] for r, _ in residents], [room[resource] for _, room in residents])
                self._add(used <= free + leaves)
        for count, s in zip(units, shapes, strict=True):
            self._waits_for_stops(k, count, s)

    def _waits_for_stops(self, k: int, count: pulp.LpVariable, shape: int) -> None:
        """What fits only once a victim is gone waits for its stop. True by itself of integers; it tightens the relaxation."""
        problem = self._problem
        need, free, residents = problem.shapes.need[:, shape], problem.classes.free[:, k], problem.classes.residents[k]
        empty = free + sum(np.array(own) for _, own in residents)
        most = min(int(count.upBound), _units(empty, need))
        for r, own in residents:
            beside = max(0, min(most, _units(empty - np.array(own), need)))
            if beside < most:
                self._add(total([count, self._variables.stop[r]], [1, beside - most]) <= beside)

    def _many_nodes(self, k: int) -> None:
        problem, variables = self._problem, self._variables
        free, size = int(problem.classes.free[GPUS, k]), int(problem.classes.size[k])
        residents = problem.classes.residents[k]
        sizes = {int(problem.shapes.need[GPUS, s]) for s in variables.shapes_on(k)}
        for least in sorted(sizes):
            units, shapes = variables.units_on(k, (s for s in variables.shapes_on(k) if problem.shapes.need[GPUS, s] >= least))
            more = [size * ((free + own[GPUS]) // least * least - free // least * least) for _, own in residents]
            room = total([variables.stop[r] for r, _ in residents], more) + size * (free // least * least)
            self._add(total(units, [int(problem.shapes.need[GPUS, s]) for s in shapes]) <= room)

    def _funding(self) -> None:
        """Ensures that new promises add up to no more than what is available at every vertex that funds."""
        for i, row in enumerate(self._problem.funding):
            promised, unit = self._promised(i)
            self._add(promised <= row.available // unit)

    def _promised(self, index: int) -> tuple[Linear, int]:
        """What this decision promises at a funding row, and the GPU-seconds that it is counted in."""
        problem, variables, row = self._problem, self._variables, self._problem.funding[index]
        made = [variables.start[j] for j in row.offers] + [variables.promote[u] for u in row.promotions]
        costs = [*problem.offers.promise_cost[row.offers].tolist(), *problem.promotions.promise_cost[row.promotions].tolist()]
        unit = max(1, gcd(*costs))
        return total(made, [cost // unit for cost in costs]), unit

    def _short_of(self, index: int, cost: int) -> pulp.LpVariable:
        """A variable that may be 1 only if this decision leaves less than `cost` at a funding row."""
        if (index, cost) not in self._shortage:
            short = self._variables.boolean()
            promised, unit = self._promised(index)
            self._where(short, promised, (self._problem.funding[index].available - cost) // unit + 1)
            self._shortage[index, cost] = short
        return self._shortage[index, cost]

    def _funded_is_charged(self) -> None:
        """Ensures that work runs uncharged only if no vertex that funds could pay its promise as well."""
        problem, variables = self._problem, self._variables
        rows_of_offer = twin_rows(problem)
        for j in map(int, np.flatnonzero(problem.offers.must_be_unfunded)):
            short = [self._short_of(i, int(problem.offers.promise_cost[j])) for i in rows_of_offer.get(j, [])]
            self._add(total([variables.start[j]]) <= total(short))
        for u, cost in enumerate(problem.promotions.promise_cost):
            short = [self._short_of(i, int(cost)) for i, row in enumerate(problem.funding) if u in row.promotions]
            stop = [variables.stop[r] for r in [int(problem.promotions.victim[u])] if r >= 0]
            self._add(total([variables.promote[u], *stop, *short]) >= 1)
            if stop:
                self._add(total([variables.promote[u], *stop]) <= 1)

    def _gpu_limit(self) -> None:
        """Ensures that nothing starts under a vertex that would then hold more than its gpu_limit."""
        problem, variables = self._problem, self._variables
        for row in problem.limits:
            starts = [variables.start[j] for j in row.offers]
            kept = row.kept + int(problem.victims.gpus[row.victims].sum())
            leaves = total(variables.stops_of(row.victims), problem.victims.gpus[row.victims].tolist())
            after = total(starts, problem.offers.gpus[row.offers].tolist()) + kept - leaves
            if kept <= row.limit:
                self._add(after <= row.limit)
                continue
            anything = variables.boolean()
            for start in starts:
                self._add(total([start]) <= total([anything]))
            # Where nothing starts, no more is held than what is kept: that is the slack, and no start adds to it.
            self._add(after + (kept - row.limit) * anything <= kept)

    def _express(self) -> None:
        """Ensures that express starts fit the lane of each pool."""
        offers = self._problem.offers
        for pool in np.unique(offers.pool[offers.express]):
            own = np.flatnonzero(offers.express & (offers.pool == pool))
            starts = [self._variables.start[j] for j in own]
            self._add(total(starts, offers.gpus[own].tolist()) <= int(self._problem.express_room[pool]))

    def _max_preemptions(self) -> None:
        """Ensures that no more charged work is stopped by choice than the policy allows."""
        if self._problem.max_stops is not None:
            charged = self._variables.stops_of(np.flatnonzero(self._problem.victims.charged))
            self._add(total(charged) <= self._problem.max_stops)

    def _licence(self) -> None:
        """Ensures that charged work without a licence stops only where express starts need its place, or to move."""
        for r in np.flatnonzero(~self._problem.victims.licensed):
            self._needed_somewhere(int(r), express=True)

    def _charged_first(self) -> None:
        """Ensures that charged work stops only where charged work needs more than uncharged could give, for victims named."""
        for r in self._displaced:
            self._needed_somewhere(r, express=False)

    def _needed_somewhere(self, victim: int, express: bool) -> None:
        """Ties a stop to a node on which its beneficiaries would not fit beside it.

        Beneficiaries are express starts (beside everything that is kept), or charged starts (beside charged work only).
        """
        stop, reasons = self._variables.stop[victim], []
        for k in sorted({int(k) for k in self._problem.node_class[self._problem.victims.nodes[victim]] if k >= 0}):
            reasons += self._needed_on(victim, k, express)
        if not express:
            reasons += [self._needed_under(victim, row) for row in self._problem.limits if victim in row.victims]
        reasons = [(need, least) for need, least in reasons if range_of(need)[1] >= least]
        moves = [self._variables.start[j] for j in self._restarts.get(victim, [])] if express else []
        single = len(reasons) == 1 and not moves
        literals = [stop] if single else [self._variables.boolean() for _ in reasons]
        for literal, (need, least) in zip(literals, reasons, strict=True):
            self._where(literal, need, least)
        if not single:
            self._add(total([stop]) <= total([*literals, *moves]))

    def _needed_on(self, victim: int, k: int, express: bool) -> list[Reason]:
        """That the beneficiaries on one node exceed, in some resource, what is left beside the victim; none if they cannot."""
        problem, variables = self._problem, self._variables
        wanted = problem.shapes.express if express else problem.shapes.charged
        restarts = self._own_shapes.get(victim, set())
        units, shapes = variables.units_on(k, [s for s in variables.shapes_on(k) if wanted[s] and s not in restarts])
        reasons = []
        late = problem.late[:, problem.classes.nodes[k][0]] * express
        for resource in (GPUS, CPUS, MEMORY) if late.any() else binding_resources(problem, k, shapes):
            others = [(r, own[resource]) for r, own in problem.classes.residents[k] if r != victim]
            gives = [(r, own) for r, own in others if not express and not problem.victims.charged[r]]
            leaving = [(r, own) for r, own in others if express or problem.victims.charged[r]]
            need = total(units, [int(problem.shapes.need[resource, s]) for s in shapes]) + self._promoted(gives)
            freed = total([variables.stop[r] for r, _ in leaving], [own for _, own in leaving])
            beside = int(problem.classes.free[resource, k] + late[resource]) + sum(own for _, own in gives)
            reasons.append((need - freed, beside + 1))
        return reasons

    def _promoted(self, residents: Sequence[tuple[int, int]]) -> Linear:
        """What those of the residents use that are promoted, and so are charged work from now on."""
        rows = [(self._promotion_of[r], own) for r, own in residents if r in self._promotion_of]
        return total([self._variables.promote[u] for u, _ in rows], [own for _, own in rows])

    def _needed_under(self, victim: int, row: LimitRow) -> Reason:
        """That charged work under a vertex, but for its own restart, leaves no room for the victim below its gpu_limit."""
        problem, variables = self._problem, self._variables
        offers = row.offers[problem.offers.charged[row.offers] & (problem.offers.victim[row.offers] != victim)]
        others = row.victims[problem.victims.charged[row.victims] & (row.victims != victim)]
        started = total([variables.start[j] for j in offers], problem.offers.gpus[offers].tolist())
        left = total(variables.stops_of(others), problem.victims.gpus[others].tolist())
        kept = row.kept_charged + int(problem.victims.gpus[others].sum()) + int(problem.victims.gpus[victim])
        promoted = self._promoted([(int(r), int(problem.victims.gpus[r])) for r in row.victims])
        return started + promoted - left, row.limit - kept + 1

    def _unallocated_last(self) -> None:
        """Ensures that entitled work waits only if work that does not surely give way leaves it no room, for the offers named.

        A relaxation where stops would idle much: that is mended, and paid for, after the solve.
        """
        for j in self._claims:
            self._waits_only_without_room(j)

    def _waits_only_without_room(self, j: int) -> None:
        offers, variables = self._problem.offers, self._variables
        shape, units = int(offers.shape[j]), int(offers.units[j])
        cost = int(offers.promise_cost[j])
        short = [self._short_of(i, cost) for i, row in enumerate(self._problem.funding) if j in row.offers]
        excuses = total([variables.start[i] for i in np.flatnonzero(offers.work == offers.work[j])] + short)
        by_domain: dict[int, list[pulp.LpVariable]] = {}
        for k, room in self._room_beside_firm(shape).items():
            cell = int(self._problem.classes.cell[k])
            domain = int(self._problem.cell_domain[offers.required[j], cell]) if offers.required[j] >= 0 else 0
            by_domain.setdefault(domain, []).append(room)
        for rooms in by_domain.values():
            most = sum(int(room.upBound) for room in rooms)
            if most >= units:
                self._add(total(rooms) - (most - units + 1) * excuses <= units - 1)

    def _room_beside_firm(self, shape: int) -> dict[int, pulp.LpVariable]:
        """By class, no fewer units of a shape than would fit if all unallocated work that surely gives way were gone."""
        if shape not in self._room:
            most = self._variables.most(shape)
            self._room[shape] = {int(k): self._class_room(shape, int(k), int(most[k])) for k in np.flatnonzero(most)}
        return self._room[shape]

    def _class_room(self, shape: int, k: int, most: int) -> pulp.LpVariable:
        problem, variables = self._problem, self._variables
        need, size = int(problem.shapes.need[GPUS, shape]), int(problem.classes.size[k])
        node, yielding = int(problem.classes.nodes[k][0]), self._gives_way(need)
        yields = yielding.on(problem, node)
        room = variables.integer(most)
        units, firm = variables.units_on(k, [s for s in variables.shapes_on(k) if not yielding.units[s, node]])
        sizes = [int(problem.shapes.need[GPUS, s]) for s in firm]
        leaving = [(r, own[GPUS]) for r, own in problem.classes.residents[k] if r in yields]
        stays = [(r, own[GPUS]) for r, own in problem.classes.residents[k] if r not in yields]
        leaves = int(problem.classes.free[GPUS, k]) + sum(gpus for _, gpus in leaving)
        stops = [variables.stop[r] for r, _ in stays]
        if size == 1:
            freed = total(stops, [gpus for _, gpus in stays]) - self._promoted(leaving)
            self._add(need * room - freed + total(units, sizes) >= leaves - need + 1)
            return room
        # Wherever they lie, firm units block no more than the units of this shape that they could cover.
        whole = total(stops, [size * ((leaves + gpus) // need - leaves // need) for _, gpus in stays])
        whole = whole - self._promoted([(r, size * -(-gpus // need)) for r, gpus in leaving])
        self._add(room - whole + total(units, [-(-own // need) for own in sizes]) >= size * (leaves // need))
        # So does each unit that gives way: what it takes has room for as many, wherever it lies.
        units, light = variables.units_on(k, [s for s in variables.shapes_on(k) if yielding.units[s, node]])
        self._add(room - total(units, [int(problem.shapes.need[GPUS, s]) // need for s in light]) >= 0)
        return room


def _units(room: IntArray, need: IntArray) -> int:
    """Units that some room holds."""
    return min(int(room[r] // need[r]) for r in range(len(need)) if need[r] > 0)


def _scaled(row: pulp.LpConstraint) -> pulp.LpConstraint:
    """The row, divided by a power of two if its coefficients are large: exact, and what a dual may be off counts for less."""
    largest = max(map(abs, row.values()), default=0)
    if largest <= LARGEST_COEFFICIENT:
        return row
    unit = 1 << int(largest // LARGEST_COEFFICIENT).bit_length()
    return pulp.LpConstraint(
        Linear({variable: factor / unit for variable, factor in row.items()}), row.sense, rhs=-row.constant / unit
    )
