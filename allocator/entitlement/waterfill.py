"""Who is owed how many GPUs: water-filling with memory.

Among siblings with weights w, charged window usage u, floors m and demands d, in GPUs,

    x_c(L) = clip((L * w_c - u_c) / H, m_c, d_c),   with the level L chosen so that the x_c add up to what is handed out.

All sets of siblings of one depth and all pools are filled at once, in 1/1000 GPU and in exact integers: int64 where no
product can overflow, Python integers otherwise, through the same code. The clipped children are found by fixing variables
instead of sorting: fill without clips, and whichever side is cut by more, the floors or the demands, is cut for good.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import gcd
from typing import Any

import numpy as np
import numpy.typing as npt

from allocator.entitlement.tree import ROOT, BudgetTree, ObjectArray, SiblingSets, frozen
from allocator.topology.layout import BoolArray, IntArray

MILLI = 1000
"""Entitlements are counted in 1/1000 GPU."""

SAFE = float(1 << 61)
"""Bound on every intermediate value that surely fits int64; it is compared with a floating-point estimate."""

Integers = npt.NDArray[Any]
"""Exact integers: int64, or objects where int64 could overflow."""


@dataclass(frozen=True, slots=True, eq=False)
class FillResult:
    """What every vertex is owed, by vertex and pool; arrays of shape (num_vertices, num_pools), read-only.

    Attributes
    ----------
    entitled
        1/1000 GPU. That of the root is what the pool hands out: its capacity, at most all demand, at least all floors.
    owed
        The same if there were no floors.
    level
        Level of the set of siblings that a vertex belongs to, a `Fraction`; None where no sibling of positive weight has
        demand, and for the root. GPU-seconds per unit of weight.
    interior
        True where the level alone decides: `entitled` is `(level * weight - usage) / horizon`, rounded. False at a floor,
        at a demand, and for weight 0.
    alarm
        True where the promises of a pool reach its capacity and somebody wants more, shape (num_pools,).
    """

    entitled: IntArray
    owed: IntArray
    level: ObjectArray
    interior: BoolArray
    alarm: BoolArray


@dataclass(frozen=True, slots=True, eq=False)
class _Siblings:
    """Some sets of siblings. Arrays by member have shape (num_members, num_pools), by set (num_sets, num_pools).

    `low` and `high` are floor and demand in 1/1000 GPU. A level is `(span * x + unit * usage) / (unit * weight)` for x in
    1/1000 GPU: `span` and `unit` are the horizon and 1000 without their common divisor.
    """

    sets: SiblingSets
    weight: Integers
    usage: Integers
    low: Integers
    high: Integers
    span: int
    unit: int

    def total(self, values: Integers) -> Integers:
        """Sums by set of values by member."""
        return np.asarray(np.add.reduceat(values, self.sets.starts, axis=0))

    def any(self, mask: BoolArray) -> BoolArray:
        """Whether a mask by member holds anywhere in each set."""
        return np.asarray(np.logical_or.reduceat(mask, self.sets.starts, axis=0))

    def spread(self, values: Integers) -> Integers:
        """Values by set, repeated for each member."""
        return np.asarray(values[self.sets.owner])

    def of(self, sets: SiblingSets) -> _Siblings:
        """Those of one depth alone, of the siblings of all depths."""
        rows = slice(sets.first - self.sets.first, sets.stop - self.sets.first)
        return _Siblings(
            sets, self.weight[rows], self.usage[rows], self.low[rows], self.high[rows], self.span, self.unit
        )  # fmt: skip

    def first(self, num: int) -> _Siblings:
        """The first columns alone."""
        return _Siblings(
            self.sets, self.weight[:, :num], self.usage[:, :num], self.low[:, :num], self.high[:, :num], self.span, self.unit
        )  # fmt: skip


def fill(
    tree: BudgetTree,
    capacity_milli: IntArray,
    usage: IntArray,
    floor: IntArray,
    demand: IntArray,
    horizon: int,
    first_submit: IntArray,
) -> FillResult:
    """Hand out the capacity of every pool, top-down through the tree.

    Parameters
    ----------
    capacity_milli
        What each pool hands out, 1/1000 GPU, shape (num_pools,).
    usage
        Charged usage in GPU-seconds, shape (num_vertices, num_pools) as the three below.
    floor, demand
        GPUs, `floor <= demand`. A vertex has at least the floors, and at most the demands, of its children together.
    horizon
        Span over which shares are evened out, seconds.
    first_submit
        When the earliest demand of a vertex was submitted: the order in which children of weight 0 are served.

    Notes
    -----
    The exact x are monotone in the capacity and in the demands of others. Rounding may take 1/1000 GPU at each depth from
    a child whose share of the surplus is smaller than that: largest remainders know that paradox.
    """
    num_pools = len(capacity_milli)
    interior = np.zeros(demand.shape, dtype=np.bool_)
    level: ObjectArray = np.full(demand.shape, None, dtype=object)
    alarm = np.zeros(capacity_milli.shape, dtype=np.bool_)
    # With floors and without: side by side as if they were pools, for most of the time goes into calls.
    capacity, used, wanted, first, least = map(_twice, (capacity_milli, usage, demand, first_submit, floor))
    least[:, num_pools:] = 0
    given = np.zeros(used.shape, dtype=np.int64)
    if tree.sets:
        siblings = _siblings(tree.every_set, _twice(tree.weight), used, least, wanted, horizon)
        filled = _fill_down(tree, siblings, given, capacity, first)
        low, high = (bound[: tree.sets[0].stop - 1, :num_pools].sum(axis=0) for bound in (siblings.low, siblings.high))
        alarm = np.asarray((low >= capacity_milli) & (high > capacity_milli) & (low > 0), dtype=np.bool_)
        siblings, filled = siblings.first(num_pools), filled.first(num_pools)
        level[1:], interior[1:] = siblings.spread(_levels(siblings, filled)), filled.interior
    entitled, owed = (frozen(half.copy()) for half in (given[:, :num_pools], given[:, num_pools:]))
    return FillResult(entitled=entitled, owed=owed, level=frozen(level), interior=frozen(interior), alarm=frozen(alarm))


def _twice(table: Integers) -> Integers:
    """The columns, and the same again."""
    return np.concatenate([table, table], axis=-1)


def hand_out(
    tree: BudgetTree,
    weight: ObjectArray,
    capacity_milli: IntArray,
    usage: IntArray,
    floor: IntArray,
    demand: IntArray,
    horizon: int,
    first_submit: IntArray,
) -> IntArray:
    """What every vertex gets, as `fill` says, without the levels: they take most of its time.

    Columns need not be the pools of the tree: `weight`, shape (num_vertices, num_columns), has the shares of each.
    """
    given = np.zeros_like(demand, dtype=np.int64)
    if tree.sets:
        siblings = _siblings(tree.every_set, weight, usage, floor, demand, horizon)
        _fill_down(tree, siblings, given, capacity_milli, first_submit)
    return frozen(given)


def _fill_down(
    tree: BudgetTree, siblings: _Siblings, given: IntArray, capacity_milli: IntArray, first_submit: IntArray
) -> _Filled:
    """Write what every vertex gets, the root first; returns how the sets of all depths were filled.

    `given` has shape (num_vertices, num_columns) and `siblings` those of all depths. The root has at least what its children
    have at least, and takes at most what they take, together.
    """
    top = siblings.of(tree.sets[0])
    given[ROOT] = np.maximum(top.low.sum(axis=0), np.minimum(capacity_milli, top.high.sum(axis=0)))
    parts = []
    for sets in tree.sets:
        given[sets.rows], filled = _fill_sets(siblings.of(sets), given[sets.parents], first_submit[sets.rows])
        parts.append(filled)
    return _Filled(*(np.concatenate([getattr(part, name) for part in parts]) for name in _Filled.__slots__))


def _siblings(
    sets: SiblingSets, weight: ObjectArray, usage: IntArray, floor: IntArray, demand: IntArray, horizon: int
) -> _Siblings:
    """The siblings of these sets, of tables with a row for each vertex, in the narrowest exact number type."""
    rows = sets.rows
    weight, usage, floor, demand = weight[rows], usage[rows], floor[rows], demand[rows]
    divisor = gcd(horizon, MILLI)
    span, unit = horizon // divisor, MILLI // divisor
    sums = [np.add.reduceat(values.astype(np.float64), sets.starts, axis=0) for values in (weight, usage, demand)]
    bound = (1 + sums[0]) * (2 * unit * sums[1] + 2 * MILLI * span * (1 + sums[2]))
    kind: type = np.int64 if bound.max(initial=0) < SAFE else object
    return _Siblings(
        sets=sets,
        weight=weight.astype(kind),
        usage=usage.astype(kind),
        low=MILLI * floor.astype(kind),
        high=MILLI * demand.astype(kind),
        span=span,
        unit=unit,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Filled:
    """How the sets of one depth were filled, as far as their levels depend on it.

    By member: what each got at least (without the leftovers for weight 0), and whether the level alone decides. By set: the
    numerator of the level times `unit`, and its weight, where some member is `interior`.
    """

    given: Integers
    interior: BoolArray
    pull: Integers
    weights: Integers

    def first(self, num: int) -> _Filled:
        """The first columns alone."""
        return _Filled(self.given[:, :num], self.interior[:, :num], self.pull[:, :num], self.weights[:, :num])


def _fill_sets(siblings: _Siblings, handed_out: IntArray, first_submit: IntArray) -> tuple[Integers, _Filled]:
    """What each member of the sets of one depth gets, and what its level follows from."""
    heavy = siblings.weight > 0
    low, high = siblings.low, siblings.high
    rises = low < high
    rest = handed_out - siblings.total(np.where(heavy, 0, low))
    least, most = (siblings.total(np.where(heavy, bound, 0)) for bound in (low, high))
    sated = rest >= most
    between = ~sated & (rest > least)
    given = np.where(heavy & siblings.spread(sated), high, low)
    filled = _settle(siblings, given, rises & heavy & siblings.spread(between), rest)
    waiting = rises & ~heavy
    if not waiting.any():
        return filled.given, filled
    left = rest - siblings.total(np.where(heavy, filled.given, 0))
    return filled.given + _serve_in_order(siblings, waiting, np.maximum(left, 0), first_submit), filled


def _settle(siblings: _Siblings, given: Integers, free: BoolArray, rest: Integers) -> _Filled:
    """Fill the free members, whose floors and demands lie on both sides of what there is, up to one level."""
    weight, usage, low, high = siblings.weight, siblings.usage, siblings.low, siblings.high
    if not free.any():
        nothing = np.zeros_like(rest)
        return _Filled(given, free, nothing, nothing)
    settled = ~siblings.any(free)
    given = np.where(free, 0, given)
    rest = np.where(settled, 0, rest - siblings.total(np.where(weight > 0, given, 0)))
    while True:
        weights = siblings.total(np.where(free, weight, 0))
        pull = siblings.span * rest + siblings.unit * siblings.total(np.where(free, usage, 0))
        # A free member would get numerator / scale, both sides of each comparison multiplied by the scale of its set.
        numerator = np.where(free, weight * siblings.spread(pull) - siblings.unit * usage * siblings.spread(weights), 0)
        scale = np.where(free, siblings.span * siblings.spread(weights), 1)
        above = np.where(free, np.maximum(numerator - high * scale, 0), 0)
        below = np.where(free, np.maximum(low * scale - numerator, 0), 0)
        cut, lifted = siblings.total(above), siblings.total(below)
        full = (above > 0) & siblings.spread(cut >= lifted)
        bare = (below > 0) & siblings.spread(lifted >= cut)
        if not (full.any() or bare.any()):
            break
        fixed = np.where(full, high, np.where(bare, low, 0))
        given = given + fixed
        rest = rest - siblings.total(fixed)
        free = free & ~full & ~bare
    interior = free & (numerator < high * scale)
    return _Filled(given + _whole(siblings, numerator, scale, free, rest), interior, pull, weights)


def _levels(siblings: _Siblings, filled: _Filled) -> ObjectArray:
    """The level of every set, None where nobody of positive weight has demand, shape (num_sets, num_pools)."""
    heavy = siblings.weight > 0
    inside = siblings.any(filled.interior)
    level: ObjectArray = np.full(inside.shape, None, dtype=object)
    for group, pool in _places(inside):
        weight = siblings.unit * int(filled.weights[group, pool])
        level[group, pool] = Fraction(int(filled.pull[group, pool]), weight)
    demanded = siblings.any(heavy & (siblings.high > 0))
    _levels_at_bounds(siblings, heavy & (siblings.low < siblings.high), filled.given, demanded & ~inside, level)
    return level


def _whole(siblings: _Siblings, numerator: Integers, scale: Integers, free: BoolArray, rest: Integers) -> Integers:
    """Round the shares of the free members to integers that add up to `rest`: largest remainder first, then index."""
    whole = numerator // scale
    units = rest - siblings.total(whole)
    remainder = numerator - whole * scale
    row, pool = np.nonzero(free & (remainder > 0))
    if not len(row):
        return whole
    place = siblings.sets.owner[row] * rest.shape[1] + pool
    order = np.argsort(-remainder[row, pool], kind="stable")
    order = order[np.argsort(place[order], kind="stable")]
    lucky = order[_rank(place[order]) < units[siblings.sets.owner[row[order]], pool[order]]]
    whole[row[lucky], pool[lucky]] += 1
    return whole


def _places(mask: BoolArray) -> Iterator[tuple[int, int]]:
    """Row and column wherever it is True."""
    row, column = mask.nonzero()
    return zip(row.tolist(), column.tolist(), strict=True)


def _rank(group: IntArray) -> IntArray:
    """Position of each element among its equals in a sorted array."""
    return np.arange(len(group)) - np.searchsorted(group, group)


def _levels_at_bounds(siblings: _Siblings, rising: BoolArray, given: Integers, bound: BoolArray, level: ObjectArray) -> None:
    """Write the level of the bound sets: those in which everybody sits at a floor or a demand.

    Where somebody wants more it is the lowest level at which a floor gives way, else the highest at which a demand is
    met; 0 where floors and demands coincide.
    """
    if not bound.any():
        return
    short = rising & (given < siblings.high)
    hungry = siblings.any(short)
    reached = siblings.span * given + siblings.unit * siblings.usage
    # The highest is the least of the negatives.
    wants, nothing = siblings.spread(hungry), Fraction(0)
    least = _least_ratios(siblings, np.where(wants, reached, -reached), np.where(wants, short, rising))
    for group, pool in _places(bound):
        ratio = least.get((group, pool), nothing)
        level[group, pool] = -ratio if ratio.numerator < 0 else ratio


def _least_ratios(siblings: _Siblings, numerator: Integers, mask: BoolArray) -> dict[tuple[int, int], Fraction]:
    """The smallest `numerator / (unit * weight)` among the masked members of each set, by set and pool.

    Whole parts are compared first, for all sets at once; only members that tie there are compared exactly.
    """
    weight = np.where(mask, siblings.unit * siblings.weight, 1)
    whole = numerator // weight
    nobody = whole.max(initial=0) + 1
    best = np.minimum.reduceat(np.where(mask, whole, nobody), siblings.sets.starts, axis=0)
    near = mask & (whole == siblings.spread(best))
    exact = near & (numerator == whole * weight)
    settled = siblings.any(exact)
    least = {place: Fraction(int(best[place])) for place in _places(settled)}
    for row, pool in _places(near & ~siblings.spread(settled)):
        ratio = Fraction(int(numerator[row, pool]), int(weight[row, pool]))
        group = int(siblings.sets.owner[row])
        least[group, pool] = min(ratio, least.get((group, pool), ratio))
    return least


def _serve_in_order(siblings: _Siblings, waiting: BoolArray, left: Integers, first_submit: IntArray) -> Integers:
    """What members of weight 0 get of the leftovers beyond their floors: earliest demand first, then index."""
    taken = np.zeros_like(siblings.low)
    row, pool = np.nonzero(waiting & siblings.spread(left > 0))
    if not len(row):
        return taken
    owner = siblings.sets.owner[row]
    order = np.lexsort((row, first_submit[row, pool], pool, owner))
    row, pool, owner = row[order], pool[order], owner[order]
    wanted = (siblings.high - siblings.low)[row, pool]
    before = np.cumsum(wanted) - wanted
    # The running sum of each set starts anew where its first member stands.
    place = owner * left.shape[1] + pool
    taken[row, pool] = np.clip(left[owner, pool] - (before - before[np.searchsorted(place, place)]), 0, wanted)
    return taken
