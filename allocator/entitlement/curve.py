"""The unfairness term: what it costs that a vertex holds more or fewer charged GPUs than it is owed.

With e the entitlement, f the GPUs that a vertex would hold without memory and debt the horizons of f that it is behind,

    below e:   K * ((1 + debt) * (e - x) + (e - x)^2 / (2 f)),     the slope of the second part at most 2
    above e:   K * 0.05 * (x - e),                                 K = weight of unfairness * planning step / n

where n counts the contributing vertices on the longest path through the vertex. Every engine and the verifier use the
interpolation that is built here: exact rationals, each slope rounded once to 1/1000 GPU-second per GPU.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import chain
from math import gcd
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from allocator.domain import Policy
from allocator.entitlement.tree import BudgetTree, ObjectArray
from allocator.entitlement.usage import effective_window
from allocator.entitlement.waterfill import MILLI, FillResult
from allocator.topology.layout import BoolArray, IntArray

MAX_SEGMENTS = 8
"""Segments of a curve on its quadratic part."""

MAX_QUADRATIC_SLOPE = 2
"""From this slope on the quadratic part goes on straight; it is so many f long."""

ABOVE = Fraction(1, 20)
"""Slope above the entitlement in units of K: far below the cost of an idle GPU."""

Ratio = tuple[int, int]
"""Numerator and positive denominator. Curves are built by the thousand; fractions would reduce at every step."""


class _Deviation(NamedTuple):
    """The exact cost of one vertex times `scale`: integer polynomials of the distance to e in 1/1000 GPU.

    Attributes
    ----------
    entitled
        e in 1/1000 GPU.
    linear, square
        Coefficients below e.
    knee
        The distance from which on the quadratic part goes straight, 1/1000 GPU; `square` holds its denominator squared.
    above
        Coefficient above e.
    scale
        Divisor that gives 1/1000 GPU-seconds.
    """

    entitled: int
    linear: int
    square: int
    knee: Ratio
    above: int
    scale: int

    def scaled(self, gpus: int) -> int:
        """Cost of holding that many GPUs, times `scale`."""
        distance = self.entitled - MILLI * gpus
        if distance <= 0:
            return -self.above * distance
        knee, unit = self.knee
        if distance * unit <= knee:
            return (self.linear + self.square * distance) * distance
        # The tangent at the knee; both divisions are exact.
        straight = self.square * knee // unit
        return (self.linear + 2 * straight) * distance - straight * knee // unit

    def points(self) -> list[int]:
        """Breakpoints: 0, the quadratic part in steps as equal as integers allow, and the integers around e."""
        knee, unit = self.knee
        last = self.entitled // MILLI
        first = max(0, (self.entitled * unit - knee) // (MILLI * unit)) if self.square else last
        steps = min(MAX_SEGMENTS, last - first)
        inside = (first + (last - first) * step // steps for step in range(1, steps))
        return sorted({0, first, *inside, last, -(-self.entitled // MILLI)})


class Curve:
    """A convex, piecewise linear function of GPUs with integer breakpoints, in 1/1000 GPU-second.

    It joins exact values at the breakpoints, each slope rounded once; the value at the integer above the entitlement is exact,
    the others follow from there. Most curves are asked for one value near that, so segments are worked out when they are
    wanted.

    Parameters
    ----------
    deviation
        The exact cost.
    capacity
        The most GPUs that can be held: there are no breakpoints beyond.
    """

    __slots__ = ("_costs", "_deviation", "_every_point", "_reachable", "_slopes")

    def __init__(self, deviation: _Deviation, capacity: int) -> None:
        points = deviation.points()
        self._deviation, self._every_point = deviation, points
        self._reachable = max(1, bisect_right(points, capacity))
        self._slopes: list[int | None] = [None] * len(points)
        self._costs: list[int | None] = [None] * len(points)
        self._costs[-1] = round_ratio(deviation.scaled(points[-1]), deviation.scale)

    def value(self, gpus: int) -> int:
        """Cost of holding that many GPUs (0 or more)."""
        last = bisect_right(self._every_point, gpus, 0, self._reachable) - 1
        cost, beyond = self._costs[last], gpus - self._every_point[last]
        if cost is None:
            cost = self._cost(last)
        return cost + self._slope(last) * beyond if beyond else cost

    @property
    def points(self) -> tuple[int, ...]:
        """Breakpoints in GPUs, ascending; the first is 0."""
        return tuple(self._every_point[: self._reachable])

    @property
    def slopes(self) -> tuple[int, ...]:
        """1/1000 GPU-second per GPU, non-decreasing: `slopes[i]` holds from `points[i]` to `points[i + 1]`, the last one for
        ever."""
        return tuple(map(self._slope, range(self._reachable)))

    @property
    def costs(self) -> tuple[int, ...]:
        """Values at the breakpoints."""
        return tuple(map(self._cost, range(self._reachable)))

    @property
    def last_slope(self) -> int:
        """The largest slope."""
        return self._slope(self._reachable - 1)

    def _cost(self, index: int) -> int:
        """The value at a breakpoint."""
        known = next(at for at in range(index, len(self._costs)) if self._costs[at] is not None)
        cost = self._costs[known] or 0
        for at in range(known - 1, index - 1, -1):
            cost -= self._slope(at) * (self._every_point[at + 1] - self._every_point[at])
            self._costs[at] = cost
        return cost

    def _slope(self, index: int) -> int:
        """The slope from a breakpoint on."""
        slope = self._slopes[index]
        if slope is None:
            slope = self._slopes[index] = self._rounded_slope(index)
        return slope

    def _rounded_slope(self, index: int) -> int:
        deviation, points = self._deviation, self._every_point
        if index == len(points) - 1:
            return round_ratio(MILLI * deviation.above, deviation.scale)
        start, stop = points[index], points[index + 1]
        rise = deviation.scaled(stop) - deviation.scaled(start)
        return round_ratio(rise, (stop - start) * deviation.scale)


class CurveTable:
    """Many curves as arrays, for many values at once."""

    def __init__(self, curves: Sequence[Curve]) -> None:
        count = np.array([len(curve.points) for curve in curves], dtype=np.int64)
        self._owner = np.repeat(np.arange(len(curves)), count)
        self._points, self._slopes, self._costs = (
            (
                np.fromiter(chain.from_iterable(parts), np.int64, len(self._owner))
                for parts in zip(*((curve.points, curve.slopes, curve.costs) for curve in curves), strict=True)
            )
            if curves
            else (np.zeros(0, dtype=np.int64) for _ in range(3))
        )

    def values(self, curve: IntArray, gpus: IntArray) -> IntArray:
        """Costs of holding `gpus[i]` GPUs (0 or more) by `curve[i]`, the same shape."""
        span = 1 + max(int(self._points.max(initial=0)), int(gpus.max(initial=0)))
        at = np.searchsorted(self._points + span * self._owner, gpus + span * curve, side="right") - 1
        costs: IntArray = self._costs[at] + self._slopes[at] * (gpus - self._points[at])
        return costs


def build_curves(
    tree: BudgetTree,
    policy: Policy,
    capacity: IntArray,
    usage: IntArray,
    held: IntArray,
    demand: IntArray,
    fill: FillResult,
) -> Mapping[tuple[int, int], Curve]:
    """The curve of every vertex and pool that contributes; the others cost nothing whatever they hold.

    Parameters
    ----------
    capacity
        The most GPUs that can be held in each pool, shape (num_pools,): no curve has breakpoints beyond.
    usage
        Charged usage in GPU-seconds, shape (num_vertices, num_pools) as the two below.
    held, demand
        GPUs: charged just before now, and asked for.
    fill
        What every vertex is owed. Debts are taken from its levels: that an entitlement was rounded is no debt.
    """
    if not policy.weights.unfairness:
        return {}
    contributes = _contributing(tree, demand)
    depth = tree.most_of(tree.sum_down(contributes.astype(np.int64)))  # contributing vertices on the longest path
    weights = _weights_with_demand(tree, demand)
    levels = _Levels(tree, policy.horizon, usage, fill)
    tops = _highest_levels(tree, held, fill, levels)
    full = MILLI * policy.planning_step * policy.weights.unfairness
    units = {count: (full / count).as_integer_ratio() for count in set(depth[contributes].tolist())}
    owed, number, parents, most = (array.tolist() for array in (fill.entitled, depth, tree.parent, capacity))
    curves = {}
    for vertex, pool in zip(*(index.tolist() for index in contributes.nonzero()), strict=True):
        parent = parents[vertex]
        weight, total = tree.weight[vertex, pool], weights[parent, pool]
        share = _share_without_memory(owed[parent][pool], weight, total)
        debt: Ratio = _debt(tops[parent, pool], levels.of(vertex, pool), weight, share, policy) if weight > 0 else (0, 1)
        quadratic = weight > 0 or total == 0
        curves[vertex, pool] = _curve(owed[vertex][pool], units[number[vertex][pool]], debt, share, quadratic, most[pool])
    return curves


def _contributing(tree: BudgetTree, demand: IntArray) -> BoolArray:
    """True for vertices that have demand and a sibling with demand."""
    asks, sets = demand > 0, tree.every_set
    contributes = np.zeros_like(asks)
    if len(sets.starts):
        several = np.add.reduceat(asks[sets.rows].astype(np.int64), sets.starts, axis=0) > 1
        contributes[sets.rows] = asks[sets.rows] & several[sets.owner]
    return contributes


def _weights_with_demand(tree: BudgetTree, demand: IntArray) -> ObjectArray:
    """The sum of the weights of the children that have demand."""
    weights: ObjectArray = np.zeros(demand.shape, dtype=object)
    asking: npt.NDArray[np.object_] = np.where(demand > 0, tree.weight, 0)
    sets = tree.every_set
    if len(sets.starts):
        weights[sets.parents] = np.add.reduceat(asking[sets.rows], sets.starts, axis=0)
    return weights


class _Levels:
    """(u + H e) / w of single vertices, before e was rounded."""

    def __init__(self, tree: BudgetTree, horizon: int, usage: IntArray, fill: FillResult) -> None:
        self._weight, self._horizon = tree.weight, horizon
        self._interior, self._level = fill.interior.tolist(), fill.level
        self._usage, self._entitled = usage.tolist(), fill.entitled.tolist()

    def of(self, vertex: int, pool: int) -> Ratio:
        """That of one vertex in one pool."""
        if self._interior[vertex][pool]:
            level: Fraction = self._level[vertex, pool]
            return level.numerator, level.denominator
        held = self._entitled[vertex][pool] // MILLI
        return self._usage[vertex][pool] + self._horizon * held, self._weight[vertex, pool]


def _highest_levels(tree: BudgetTree, held: IntArray, fill: FillResult, levels: _Levels) -> dict[tuple[int, int], Ratio]:
    """L' of the children of each vertex: their level, or that of a sibling which held more than it is owed, if higher."""
    sets = tree.every_set
    by_set = fill.level[sets.first + sets.starts].tolist()
    tops: dict[tuple[int, int], Ratio] = {
        (parent, pool): level.as_integer_ratio()
        for parent, row in zip(sets.parents.tolist(), by_set, strict=True)
        for pool, level in enumerate(row)
        if level is not None
    }
    # Those inside their bounds sit at the level itself.
    over = (MILLI * held > fill.entitled) & (tree.weight > 0) & ~fill.interior
    for vertex, pool in zip(*(index.tolist() for index in over.nonzero()), strict=True):
        if (place := (int(tree.parent[vertex]), pool)) in tops:
            own = levels.of(vertex, pool)
            if own[0] * tops[place][1] > tops[place][0] * own[1]:
                tops[place] = own
    return tops


def _share_without_memory(milli: int, weight: int, total: int) -> Ratio:
    """The f of a vertex in GPUs: its part of what the parent hands out, at least 1."""
    share, unit = milli * weight, MILLI * total
    if share <= unit:
        return 1, 1
    divisor = gcd(share, unit)
    return share // divisor, unit // divisor


def _debt(top: Ratio, own: Ratio, weight: int, share: Ratio, policy: Policy) -> Ratio:
    """How many horizons of its share a vertex is behind, between 0 and W / H."""
    behind = (top[0] * own[1] - own[0] * top[1]) * weight * share[1]
    unit = top[1] * own[1] * policy.horizon * share[0]
    if behind <= 0:
        return 0, 1
    limit = effective_window(policy), policy.horizon
    return limit if behind * limit[1] > limit[0] * unit else (behind, unit)


@lru_cache(maxsize=1 << 14)
def _curve(entitled: int, unit: Ratio, debt: Ratio, share: Ratio, quadratic: bool, capacity: int) -> Curve:
    """The curve of one vertex; `unit` is K in 1/1000 GPU-second per GPU. Many recur from one epoch to the next."""
    return Curve(_deviation(entitled, unit, debt, share, quadratic), capacity)


def _deviation(entitled: int, unit: Ratio, debt: Ratio, share: Ratio, quadratic: bool) -> _Deviation:
    """Bring all coefficients to one denominator."""
    price, price_unit = unit
    behind, debt_unit = debt
    gpus, share_unit = share
    common = price * debt_unit * 2 * MILLI * gpus * share_unit
    return _Deviation(
        entitled=entitled,
        linear=common // debt_unit * (debt_unit + behind),
        square=price * debt_unit * share_unit**2 if quadratic else 0,
        knee=(MAX_QUADRATIC_SLOPE * MILLI * gpus, share_unit),
        above=common * ABOVE.numerator // ABOVE.denominator,
        scale=price_unit * debt_unit * 2 * MILLI**2 * gpus * share_unit,
    )


def round_ratio(numerator: int, denominator: int) -> int:
    """The integer nearest to a ratio, halves upwards; `denominator` is positive."""
    return (2 * numerator + denominator) // (2 * denominator)
