"""What one step is worth, in 1/1000 GPU-second: exact differences of the objective at the present state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from allocator.epoch.problem import EpochProblem
from allocator.epoch.solution import fragmentation_value
from allocator.models.greedy.variables import State


class Curves:
    """The curves of the share terms of one problem, each value computed once."""

    def __init__(self, problem: EpochProblem) -> None:
        self._shares = problem.shares
        self._known: list[dict[int, int]] = [{} for _ in self._shares]

    def step(self, terms: Iterable[int], held: Sequence[int], gpus: int) -> int:
        """What `gpus` more on all these terms cost."""
        total = 0
        for t in terms:
            total += self.value(t, held[t] + gpus) - self.value(t, held[t])
        return total

    def value(self, t: int, change: int) -> int:
        """The cost of a term after a change of its GPUs."""
        known = self._known[t]
        found = known.get(change)
        if found is None:
            found = known[change] = self._shares[t].curve.value(self._shares[t].base + change)
        return found


def value_of_state(state: State, curves: Curves) -> int:
    """The value of what has been decided: the same as `value_of` its solution."""
    problem = state.problem
    shares = sum(curves.value(t, held) - curves.value(t, 0) for t, held in enumerate(state.held) if held)
    broken = fragmentation_value(problem, state.placed) - fragmentation_value(problem, problem.whole_placed)
    return state.cost + shares + broken


def gain_of_start(state: State, curves: Curves, j: int) -> int:
    """What starting offer j saves wherever it lies."""
    return state.tables.gain[j] - curves.step(state.tables.terms_of_offer[j], state.held, state.tables.gpus[j])


def loss_of_return(state: State, curves: Curves, j: int) -> int:
    """What taking back the start of offer j costs, but for the place it had."""
    return state.tables.gain[j] + curves.step(state.tables.terms_of_offer[j], state.held, -state.tables.gpus[j])


def gain_of_keep(state: State, curves: Curves, r: int) -> int:
    """What keeping victim r, stopped so far, saves without a promotion."""
    return state.tables.victim_cost[r] - curves.step(state.tables.terms_of_victim[r], state.held, state.tables.victim_gpus[r])
