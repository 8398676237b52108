"""One method per hard rule, under the name it has in the formulation, the verifier and the tests."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial

import numpy as np
from ortools.sat.python import cp_model

from allocator.epoch.afterthoughts import gives_way
from allocator.epoch.problem import EpochProblem, LimitRow, own_shapes, restarts_of
from allocator.models.cpsat.variables import Linear, Variables, constant, total
from allocator.models.queries import by_value, most_units, twin_rows
from allocator.topology.layout import CPUS, GPUS, MEMORY

Row = cp_model.BoundedLinearExpression | bool
"""A linear constraint; a truth where no variable is left in it."""


class Constraints:
    """Adds the rules to the model; `add_all` is its table of contents."""

    def __init__(
        self, model: cp_model.CpModel, problem: EpochProblem, variables: Variables, claims: Sequence[int] = (),
        displaced: Sequence[int] = (),
    ) -> None:  # fmt: skip
        self._model, self._problem, self._variables = model, problem, variables
        self._claims, self._displaced = claims, displaced
        self._shortage: dict[tuple[int, int], cp_model.IntVar] = {}
        self._room: dict[int, dict[int, cp_model.IntVar]] = {}
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

    def _one_offer_per_workload(self) -> None:
        """Ensures that a workload starts in one way at most."""
        for offers in by_value(self._problem.offers.work):
            if len(offers) > 1:
                self._model.add_at_most_one(self._variables.start[j] for j in offers)

    def _relocation(self) -> None:
        """Ensures that running work starts elsewhere only if it is stopped."""
        for victim, offers in self._restarts.items():
            self._model.add(total([self._variables.start[j] for j in offers]) <= self._variables.stop[victim])

    def _gang(self) -> None:
        """Ensures that all units of a gang run, or none."""
        for j, cells in enumerate(self._variables.units):
            if self._problem.offers.units[j] > 1:
                self._model.add(total(list(cells.values())) == int(self._problem.offers.units[j]) * self._variables.start[j])

    def _topology(self) -> None:
        """Ensures that a gang with a required level lies inside one domain of that level."""
        offers = self._problem.offers
        for j in np.flatnonzero((offers.required >= 0) & (offers.units > 1)):
            chosen = []
            for cells in self._cells_by_domain(int(j), int(offers.required[j])).values():
                inside = self._variables.boolean(None)
                chosen.append(inside)
                self._model.add(total(cells) == int(offers.units[j]) * inside)
            self._model.add(total(chosen) == self._variables.start[j])

    def _segment(self) -> None:
        """Ensures that every domain of the segment level holds a multiple of the segment, but for one remainder."""
        offers = self._problem.offers
        for j in np.flatnonzero(offers.segment_level >= 0):
            size, odd = int(offers.segment_units[j]), []
            for cells in self._cells_by_domain(int(j), int(offers.segment_level[j])).values():
                remainder = self._variables.boolean(None)
                odd.append(remainder)
                whole = self._variables.integer(0, int(offers.units[j]) // size, None)
                rest = self._variables.integer(0, size - 1, None)
                self._model.add(total(cells) == size * whole + rest)
                self._model.add(rest <= (size - 1) * remainder)
            self._model.add_at_most_one(odd)

    def _cells_by_domain(self, j: int, level: int) -> dict[int, list[cp_model.IntVar]]:
        found: dict[int, list[cp_model.IntVar]] = {}
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
            self._model.add(total([count for _, count in counts]) == started)
            gangs = [j for j in own if offers.units[j] > 1]
            if gangs:
                self._gangs_in_cells(gangs, counts)

    def _gangs_in_cells(self, gangs: list[int], counts: list[tuple[int, cp_model.IntVar]]) -> None:
        by_cell: dict[int, list[cp_model.IntVar]] = {}
        for k, count in counts:
            by_cell.setdefault(int(self._problem.classes.cell[k]), []).append(count)
        for cell, here in by_cell.items():
            units = [self._variables.units[j][cell] for j in gangs if cell in self._variables.units[j]]
            self._model.add(total(units) <= total(here))

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
        residents = self._problem.classes.residents[k]
        for resource in (GPUS, CPUS, MEMORY):
            need = [int(problem.shapes.need[resource, s]) for s in shapes]
            free = int(problem.classes.free[resource, k])
            most = sum(
                n * int(problem.offers.units[problem.offers.shape == s].sum()) for n, s in zip(need, shapes, strict=True)
            )
            if most > free:
                leaves = total([variables.stop[r] for r, _ in residents], [room[resource] for _, room in residents])
                self._model.add(total(units, need) <= free + leaves)

    def _many_nodes(self, k: int) -> None:
        problem, variables = self._problem, self._variables
        free, size = int(problem.classes.free[GPUS, k]), int(problem.classes.size[k])
        residents = self._problem.classes.residents[k]
        sizes = {int(problem.shapes.need[GPUS, s]) for s in variables.shapes_on(k)}
        for least in sorted(sizes):
            units, shapes = variables.units_on(k, (s for s in variables.shapes_on(k) if problem.shapes.need[GPUS, s] >= least))
            room = constant(size * (free // least * least))
            for r, own in residents:
                room = room + size * ((free + own[GPUS]) // least * least - free // least * least) * variables.stop[r]
            self._model.add(total(units, [int(problem.shapes.need[GPUS, s]) for s in shapes]) <= room)

    def _funding(self) -> None:
        """Ensures that new promises add up to no more than what is available at every vertex that funds."""
        for row in self._problem.funding:
            self._model.add(self._promised(row.offers, row.promotions) <= row.available)

    def _promised(self, offers: np.ndarray, promotions: np.ndarray) -> Linear:
        problem, variables = self._problem, self._variables
        made = [variables.start[j] for j in offers] + [variables.promote[u] for u in promotions]
        costs = [*problem.offers.promise_cost[offers].tolist(), *problem.promotions.promise_cost[promotions].tolist()]
        return total(made, costs)

    def _short_of(self, index: int, cost: int) -> cp_model.IntVar:
        """A Boolean that may be true only if this decision leaves less than `cost` at a funding row."""
        if (index, cost) not in self._shortage:
            row, short = self._problem.funding[index], self._variables.boolean(None)
            self._model.add(self._promised(row.offers, row.promotions) > row.available - cost).only_enforce_if(short)
            self._shortage[index, cost] = short
        return self._shortage[index, cost]

    def _funded_is_charged(self) -> None:
        """Ensures that work runs uncharged only if no vertex that funds could pay its promise as well."""
        problem, variables = self._problem, self._variables
        rows_of_offer = twin_rows(problem)
        for j in np.flatnonzero(problem.offers.must_be_unfunded):
            short = [self._short_of(i, int(problem.offers.promise_cost[j])) for i in rows_of_offer.get(int(j), [])]
            self._model.add_bool_or([variables.start[j].negated(), *short])
        for u, cost in enumerate(problem.promotions.promise_cost):
            short = [self._short_of(i, int(cost)) for i, row in enumerate(problem.funding) if u in row.promotions]
            stop = [variables.stop[r] for r in [int(problem.promotions.victim[u])] if r >= 0]
            self._model.add_bool_or([variables.promote[u], *stop, *short])
            if stop:
                self._model.add_implication(variables.promote[u], stop[0].negated())

    def _gpu_limit(self) -> None:
        """Ensures that nothing starts under a vertex that would then hold more than its gpu_limit."""
        problem, variables = self._problem, self._variables
        for row in problem.limits:
            starts = [variables.start[j] for j in row.offers]
            kept = row.kept + sum(int(g) for g in problem.victims.gpus[row.victims])
            leaves = total(variables.stops_of(row.victims), problem.victims.gpus[row.victims].tolist())
            after = total(starts, problem.offers.gpus[row.offers].tolist()) + kept - leaves
            if kept <= row.limit:
                self._model.add(after <= row.limit)
                continue
            anything = self._variables.boolean(None)
            self._model.add_max_equality(anything, starts)
            self._model.add(after <= row.limit).only_enforce_if(anything)

    def _express(self) -> None:
        """Ensures that express starts fit the lane of each pool."""
        offers = self._problem.offers
        for pool in np.unique(offers.pool[offers.express]):
            own = np.flatnonzero(offers.express & (offers.pool == pool))
            starts = [self._variables.start[j] for j in own]
            self._model.add(total(starts, offers.gpus[own].tolist()) <= int(self._problem.express_room[pool]))

    def _max_preemptions(self) -> None:
        """Ensures that no more charged work is stopped by choice than the policy allows."""
        if self._problem.max_stops is not None:
            charged = self._variables.stops_of(np.flatnonzero(self._problem.victims.charged))
            self._model.add(total(charged) <= self._problem.max_stops)

    def _licence(self) -> None:
        """Ensures that charged work without a licence stops only where express starts need its place, or to move."""
        for r in np.flatnonzero(~self._problem.victims.licensed):
            self._needed_somewhere(int(r), express=True)

    def _charged_first(self) -> None:
        """Ensures that a charged victim, if named, stops only where charged work needs more than uncharged work could give."""
        for r in self._displaced:
            self._needed_somewhere(r, express=False)

    def _needed_somewhere(self, victim: int, express: bool) -> None:
        """Ties a stop to a node on which its beneficiaries would not fit beside it.

        Beneficiaries are express starts (beside everything that is kept), or charged starts (beside charged work only).
        """
        stop, reasons = self._variables.stop[victim], []
        for k in sorted({int(k) for k in self._problem.node_class[self._problem.victims.nodes[victim]] if k >= 0}):
            for resource in (GPUS, CPUS, MEMORY):
                reasons += self._needed_on(victim, k, resource, express)
        if not express:
            reasons += [self._needed_under(victim, row) for row in self._problem.limits if victim in row.victims]
        moves = [self._variables.start[j] for j in self._restarts.get(victim, [])] if express else []
        if len(reasons) == 1 and not moves:
            self._model.add(reasons[0]).only_enforce_if(stop)
            return
        literals = []
        for reason in reasons:
            literal = self._variables.boolean(None)
            self._model.add(reason).only_enforce_if(literal)
            literals.append(literal)
        self._model.add_bool_or([stop.negated(), *literals, *moves])

    def _needed_on(self, victim: int, k: int, resource: int, express: bool) -> list[Row]:
        """That beneficiaries on one node exceed, in one resource, what is left beside the victim; nothing if they never can."""
        problem, variables = self._problem, self._variables
        wanted = problem.shapes.express if express else problem.shapes.charged
        restarts = self._own_shapes.get(victim, set())
        units, shapes = variables.units_on(
            k, (s for s in variables.shapes_on(k) if wanted[s] and problem.shapes.need[resource, s] and s not in restarts)
        )
        others = [(r, own[resource]) for r, own in problem.classes.residents[k] if r != victim]
        gives_way = [(r, own) for r, own in others if not express and not problem.victims.charged[r]]
        leaving = [(r, own) for r, own in others if express or problem.victims.charged[r]]
        if not units:
            return []
        need = total(units, [int(problem.shapes.need[resource, s]) for s in shapes]) + self._promoted(gives_way)
        freed = total([variables.stop[r] for r, _ in leaving], [own for _, own in leaving])
        beside = int(problem.classes.free[resource, k]) + sum(own for _, own in gives_way)
        if express:
            beside += int(problem.late[resource, problem.classes.nodes[k][0]])
        return [need - freed > beside]

    def _promoted(self, residents: Sequence[tuple[int, int]]) -> Linear:
        """What those of the residents use that are promoted, and so are charged work from now on."""
        rows = [(self._promotion_of[r], own) for r, own in residents if r in self._promotion_of]
        return total([self._variables.promote[u] for u, _ in rows], [own for _, own in rows])

    def _needed_under(self, victim: int, row: LimitRow) -> Row:
        """That charged work under a vertex, but for its own restart, leaves no room for the victim below its gpu_limit."""
        problem, variables = self._problem, self._variables
        offers = row.offers[problem.offers.charged[row.offers] & (problem.offers.victim[row.offers] != victim)]
        others = row.victims[problem.victims.charged[row.victims] & (row.victims != victim)]
        started = total([variables.start[j] for j in offers], problem.offers.gpus[offers].tolist())
        left = total(variables.stops_of(others), problem.victims.gpus[others].tolist())
        kept = row.kept_charged + int(problem.victims.gpus[others].sum()) + int(problem.victims.gpus[victim])
        promoted = self._promoted([(int(r), int(problem.victims.gpus[r])) for r in row.victims])
        return kept + started + promoted - left > row.limit

    def _unallocated_last(self) -> None:
        """Ensures that entitled work waits only if work that does not surely give way leaves it no room, for the offers named.

        A relaxation where stops would idle much: that is mended, and paid for, after the solve.
        """
        for j in self._claims:
            self._waits_only_without_room(j)

    def _waits_only_without_room(self, j: int) -> None:
        offers, variables = self._problem.offers, self._variables
        shape, units = int(offers.shape[j]), int(offers.units[j])
        short = [
            self._short_of(i, int(offers.promise_cost[j])) for i, row in enumerate(self._problem.funding) if j in row.offers
        ]
        excuses = [variables.start[i] for i in np.flatnonzero(offers.work == offers.work[j])] + short
        by_domain: dict[int, list[cp_model.IntVar]] = {}
        for k, room in self._room_beside_firm(shape).items():
            cell = int(self._problem.classes.cell[k])
            domain = int(self._problem.cell_domain[offers.required[j], cell]) if offers.required[j] >= 0 else 0
            by_domain.setdefault(domain, []).append(room)
        for rooms in by_domain.values():
            self._model.add(total(rooms) < units).only_enforce_if([excuse.negated() for excuse in excuses])

    def _room_beside_firm(self, shape: int) -> dict[int, cp_model.IntVar]:
        """By class, no fewer units of a shape than would fit if all unallocated work that surely gives way were gone."""
        if shape not in self._room:
            most = most_units(self._problem)[shape]
            self._room[shape] = {int(k): self._class_room(shape, int(k), int(most[k])) for k in np.flatnonzero(most)}
        return self._room[shape]

    def _class_room(self, shape: int, k: int, most: int) -> cp_model.IntVar:
        problem, variables = self._problem, self._variables
        need, free, size = (
            int(problem.shapes.need[GPUS, shape]),
            int(problem.classes.free[GPUS, k]),
            int(problem.classes.size[k]),
        )
        node, yielding = int(problem.classes.nodes[k][0]), self._gives_way(need)
        yields = yielding.on(problem, node)
        room = variables.integer(0, most, None)
        units, firm = variables.units_on(k, [s for s in variables.shapes_on(k) if not yielding.units[s, node]])
        sizes = [int(problem.shapes.need[GPUS, s]) for s in firm]
        leaving = [(r, own[GPUS]) for r, own in problem.classes.residents[k] if r in yields]
        stays = [(r, own[GPUS]) for r, own in problem.classes.residents[k] if r not in yields]
        leaves = free + sum(gpus for _, gpus in leaving)
        if size == 1:
            freed = total([variables.stop[r] for r, _ in stays], [gpus for _, gpus in stays]) - self._promoted(leaving)
            self._model.add(need * room > leaves + freed - total(units, sizes) - need)
            return room
        # Wherever they lie, firm units block no more than the units of this shape that they could cover.
        whole = constant(size * (leaves // need)) - size * self._promoted([(r, -(-g // need)) for r, g in leaving])
        for r, gpus in stays:
            whole = whole + size * ((leaves + gpus) // need - leaves // need) * variables.stop[r]
        self._model.add(room >= whole - total(units, [-(-own // need) for own in sizes]))
        # So does each unit that gives way: what it takes has room for as many, wherever it lies.
        units, light = variables.units_on(k, [s for s in variables.shapes_on(k) if yielding.units[s, node]])
        self._model.add(room >= total(units, [int(problem.shapes.need[GPUS, s]) // need for s in light]))
        return room
