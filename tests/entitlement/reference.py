"""Slow and exact: what the fast code must agree with, written from the formulas, one set of siblings at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from allocator.domain import UsageRecord
from allocator.entitlement.tree import BudgetTree

MILLI = 1000


@dataclass(frozen=True)
class Child:
    """One child of a set: weight, charged usage, floor, demand (GPUs), and when its first demand was submitted."""

    weight: int
    usage: int
    floor: int
    demand: int
    submit: int = 0

    def at(self, level: Fraction, horizon: int) -> Fraction:
        """x(L) in GPUs."""
        wanted = (level * self.weight - self.usage) / horizon
        return min(Fraction(self.demand), max(Fraction(self.floor), wanted))

    def level_of(self, gpus: int, horizon: int) -> Fraction:
        """The level at which the child would hold that many GPUs."""
        return Fraction(self.usage + horizon * gpus, self.weight)


@dataclass(frozen=True)
class Filled:
    """What each child gets: exactly (GPUs), rounded (1/1000 GPU), and the level."""

    exact: list[Fraction]
    milli: list[int]
    level: Fraction | None


def fill_set(children: Sequence[Child], milli: int, horizon: int) -> Filled:
    """Fill one set by sorting the breakpoints of the sum of the x(L)."""
    gpus = Fraction(milli, MILLI)
    heavy = [child for child in children if child.weight > 0]
    rest = gpus - sum(child.floor for child in children if child.weight == 0)
    level = _level(heavy, rest, horizon)
    if sum(child.floor for child in children) >= gpus:
        exact = [Fraction(child.floor) for child in children]
    else:
        # A level of None means that no child with a weight has a demand.
        exact = [child.at(level or Fraction(0), horizon) if child.weight else Fraction(child.floor) for child in children]
        left = gpus - sum(exact)
        for i in sorted(range(len(children)), key=lambda i: (children[i].submit, i)):
            if children[i].weight == 0:
                more = min(left, Fraction(children[i].demand - children[i].floor))
                exact[i], left = exact[i] + more, left - more
    return Filled(exact, _largest_remainder(exact), level)


def _level(heavy: Sequence[Child], rest: Fraction, horizon: int) -> Fraction | None:
    """The level as stated, for the children with a weight."""
    if all(child.demand == 0 for child in heavy):
        return None
    rising = [child for child in heavy if child.floor < child.demand]
    if not rising:
        return Fraction(0)
    if rest >= sum(child.demand for child in heavy):
        return max(child.level_of(child.demand, horizon) for child in rising)
    if rest <= sum(child.floor for child in heavy):
        return min(child.level_of(child.floor, horizon) for child in rising)
    return _largest_solution(
        lambda level: sum((child.at(level, horizon) for child in heavy), Fraction(0)), rising, rest, horizon
    )


def _largest_solution(total: Callable[[Fraction], Fraction], rising: Sequence[Child], rest: Fraction, horizon: int) -> Fraction:
    """The largest L with total(L) = rest, where total is non-decreasing and linear between breakpoints."""
    kinks = sorted({child.level_of(gpus, horizon) for child in rising for gpus in (child.floor, child.demand)})
    above = next(i for i, kink in enumerate(kinks) if total(kink) > rest)
    left, right = kinks[above - 1], kinks[above]
    return left + (rest - total(left)) / (total(right) - total(left)) * (right - left)


def _largest_remainder(exact: Sequence[Fraction]) -> list[int]:
    """1/1000 GPU with the same sum: the largest remainders are rounded up, the smaller index first among equals."""
    scaled = [MILLI * gpus for gpus in exact]
    whole = [int(value) for value in scaled]
    units = sum(scaled) - sum(whole)
    order = sorted(range(len(scaled)), key=lambda i: (whole[i] - scaled[i], i))
    for i in order[: int(units)]:
        whole[i] += 1
    return whole


def fill_pool(tree: BudgetTree, pool: int, capacity_milli: int, children: Sequence[Child], horizon: int) -> list[Filled | None]:
    """Fill one pool top-down. `children[v]` is vertex v; the result belongs to the set of children of v."""
    entitled = [0] * len(children)
    top = [children[child] for child in tree.children[0]]
    entitled[0] = max(MILLI * sum(c.floor for c in top), min(capacity_milli, MILLI * sum(c.demand for c in top)))
    filled: list[Filled | None] = []
    for vertex, below in enumerate(tree.children):
        filled.append(fill_set([children[child] for child in below], entitled[vertex], horizon) if below else None)
        for position, child in enumerate(below):
            result = filled[-1]
            assert result is not None
            entitled[child] = result.milli[position]
    return filled


def window_seconds(records: Sequence[UsageRecord], start: int, now: int, charged: bool) -> int:
    """GPU-seconds of records inside the window, second by second; for tiny spans only."""
    total = 0
    for second in range(start, now):
        here = [r for r in records if r.start <= second < r.end and r.charged is charged]
        total += sum(r.gpus for r in here if r.id is None)
        total += sum({r.id: r.gpus for r in here if r.id is not None}.values())
    return total


def deviation(entitled: Fraction, share: Fraction | None, debt: Fraction, gpus: int) -> Fraction:
    """The cost of holding `gpus` in units of K; without a share there is no quadratic part."""
    if gpus >= entitled:
        return Fraction(1, 20) * (gpus - entitled)
    short = entitled - gpus
    quadratic = Fraction(0)
    if share is not None:
        curved = min(short, 2 * share)
        quadratic = curved**2 / (2 * share) + 2 * (short - curved)
    return (1 + debt) * short + quadratic


def shares_and_debts(
    children: Sequence[Child], filled: Filled, held: Sequence[int], handed_out: Fraction, horizon: int, window: int
) -> list[tuple[Fraction | None, Fraction]]:
    """f (None: no quadratic part) and debt of each child, from the unrounded entitlements."""
    total = sum(child.weight for child in children if child.demand > 0)
    if total == 0:
        return [(Fraction(1), Fraction(0)) for _ in children]
    levels = [(c.usage + horizon * x) / Fraction(c.weight or 1) for c, x in zip(children, filled.exact, strict=True)]
    over = [
        level
        for child, level, gpus, milli in zip(children, levels, held, filled.milli, strict=True)
        if child.weight > 0 and MILLI * gpus > milli
    ]
    assert filled.level is not None
    top = max([filled.level, *over])
    result: list[tuple[Fraction | None, Fraction]] = []
    for child, level in zip(children, levels, strict=True):
        share = max(Fraction(1), handed_out * child.weight / total)
        behind = max(Fraction(0), (top - level) * child.weight / (horizon * share))
        result.append((share, min(behind, Fraction(window, horizon))) if child.weight else (None, Fraction(0)))
    return result
