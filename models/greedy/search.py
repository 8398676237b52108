"""A short search around the linear relaxation: the large pieces by branching, the small ones by rounding."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np

from allocator.epoch.problem import EpochProblem
from allocator.epoch.solution import EpochSolution
from allocator.models.greedy.news import FloatArray
from allocator.models.greedy.objective import value_of_state
from allocator.models.greedy.relaxation import INTEGRAL, Fixed, Relaxation, Relaxed, gpus_of_choices
from allocator.models.greedy.rounding import Rounding, places_in_lanes
from allocator.models.greedy.variables import State

EFFORT = 40
"""Solves of the relaxation, each about a millisecond at 1,024 GPUs."""

ROUNDING_EFFORT = 3
"""What one rounding costs, in solves."""

MOST_COLUMNS = 250_000
"""Columns solved over all, so that large clusters get fewer solves."""

LARGE = 8.0
"""GPUs that a fraction leaves open from which on it is worth a branch; one node."""

COMPLETIONS = 10
"""Times that fractions are rounded and the relaxation solved again, before the rest is rounded without."""

COMPLETION_EFFORT = 3
"""What these cost together at most, in solves: each starts from where the last one ended."""

TOLERANCE = 0.002
"""Share of the cluster's time that no further solve is spent on."""

HALF = 0.5

CLEAR = 0.2
"""Fractions that far from a half are rounded at once; two halves of one place would both be rounded up."""


class Search:
    """Depth first while a large piece is split, then from the open node with the best bound, until the effort is spent.

    Attributes
    ----------
    best, value
        The best decision found, and what it is worth.
    bound
        What no decision is better than; None if the relaxation was not solved.
    """

    def __init__(self, problem: EpochProblem) -> None:
        self.rounding = Rounding(problem)
        self.best, self.value = EpochSolution(), 0
        self.bound: int | None = None
        self._state = State(problem, self.rounding.tables)
        self._gpus = gpus_of_choices(problem)
        self._tolerance = TOLERANCE * 1000 * problem.step_gpus
        self._left = EFFORT if len(self._gpus) <= MOST_COLUMNS else 0
        if self._left:
            self.relaxation = Relaxation(problem)
            self._left = min(EFFORT, MOST_COLUMNS // max(1, self.relaxation.num_columns))
        self._open: list[tuple[float, int, Fixed]] = []
        self._pushed = 0
        self._num_offers = len(problem.offers.work)
        self._lane, self._at = places_in_lanes(self.rounding.lanes, self._num_offers)

    def run(self) -> None:
        """Find a good decision; where the relaxation finds none, what fills free GPUs, or keep."""
        branch: Fixed | None = {}
        while branch is not None and self._left > 0:
            branch = self._visit(branch)
            if branch is None and self._open:
                branch = heapq.heappop(self._open)[2]
        if self.value == 0 and not self._proven:
            self._consider(np.zeros(len(self._gpus)))
        if not self._proven:
            self._exchange()
        self._start_overlooked()
        if not self._proven:
            self._lose_less()

    @property
    def _proven(self) -> bool:
        """Whether no decision is better than the best found."""
        return self.bound is not None and self.value <= self.bound

    def _exchange(self) -> None:
        """Small exchanges that no rounding has found, on top of the best."""
        state = self._state.copy()
        if self.rounding.exchange(state):
            self.rounding.mend(state)
            self._keep(state)

    def _start_overlooked(self) -> None:
        """What a rule wants, at a price or not: else the last pass would do it, and knows no costs."""
        if self.rounding.start_overlooked(self._state):
            self.best, self.value = self._state.solution(), value_of_state(self._state, self.rounding.curves)

    def _lose_less(self) -> None:
        """The same starts where the stops for them cost less."""
        state = self.rounding.at_less_cost(self._state)
        if state is not self._state:
            self.rounding.mend(state)
            self._keep(state)

    def _visit(self, fixed: Fixed) -> Fixed | None:
        """Solve one node; the branch to go on with if a large piece is split, while others wait among the open ones."""
        found = self._solve(fixed)
        if found is None:
            return None
        split = np.abs(found.chosen - np.round(found.chosen)) * self._gpus
        k = int(np.argmax(split))
        if split[k] < LARGE or not fixed:
            self._complete(fixed, found)
        if split[k] < INTEGRAL or not self._promising(found):
            return None
        up, down = self._round_up(k), self._round_down(k)
        first, second = (up, down) if found.chosen[k] >= HALF else (down, up)
        self._push(found, {**fixed, **second})
        if split[k] >= LARGE:
            return {**fixed, **first}
        self._push(found, {**fixed, **first})
        return None

    def _push(self, found: Relaxed, branch: Fixed) -> None:
        self._pushed += 1
        heapq.heappush(self._open, (found.value, self._pushed, branch))

    def _solve(self, fixed: Fixed) -> Relaxed | None:
        """The relaxation, if it leaves something to gain."""
        self._left -= 1
        found = self.relaxation.solve(fixed)
        if found and not fixed:
            self.bound = self.relaxation.bound()
        return found if found and self._promising(found) else None

    def _promising(self, found: Relaxed) -> bool:
        return found.value < self.value - self._tolerance

    def _complete(self, fixed: Fixed, found: Relaxed) -> None:
        """Round what is clear and the largest piece, see what the relaxation makes of it, and go on; then round for good."""
        left = self._left
        for _ in range(COMPLETIONS):
            split = np.flatnonzero(np.abs(found.chosen - np.round(found.chosen)) > INTEGRAL)
            if not len(split):
                break
            largest = split[np.argmax(self._gpus[split])]
            clear = np.abs(found.chosen[split] - HALF) >= CLEAR
            again = self._rounded(fixed, found, [largest, *split[clear & (split != largest)]])
            if again is None:
                break
            fixed, found = again
        self._left = max(self._left, left - COMPLETION_EFFORT)
        self._consider(found.chosen)

    def _rounded(self, fixed: Fixed, found: Relaxed, chosen: Sequence[int]) -> tuple[Fixed, Relaxed] | None:
        """The relaxation with these rounded; only those that are rounded down where all together leave nothing to gain."""
        down = [k for k in chosen if found.chosen[k] < HALF]
        for some in (chosen, down) if 0 < len(down) < len(chosen) else (chosen,):
            rounded = dict(fixed)
            for k in some:
                rounded.update(self._round_up(k) if found.chosen[k] >= HALF else self._round_down(k))
            again = self._solve(rounded)
            if again is not None:
                return rounded, again
        return None

    def _consider(self, chosen: FloatArray) -> None:
        self._left -= ROUNDING_EFFORT
        state = self.rounding.carry_out(chosen)
        if value_of_state(state, self.rounding.curves) < self.value:
            self.rounding.mend(state)
            self._keep(state)

    def _keep(self, state: State) -> None:
        value = value_of_state(state, self.rounding.curves)
        if value < self.value:
            self.best, self.value, self._state = state.solution(), value, state

    def _round_up(self, k: int) -> Fixed:
        """One more of a lane, and so all before it."""
        members, at = self._place_in_lane(k)
        return dict.fromkeys(members[: at + 1], 1)

    def _round_down(self, k: int) -> Fixed:
        """No more of a lane."""
        members, at = self._place_in_lane(k)
        return dict.fromkeys(members[at:], 0)

    def _place_in_lane(self, k: int) -> tuple[Sequence[int], int]:
        """The lane of a choice and its place there; what is no offer is alone."""
        return (self.rounding.lanes[self._lane[k]], int(self._at[k])) if k < self._num_offers else ([k], 0)
