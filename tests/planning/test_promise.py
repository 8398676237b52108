"""What a fleet delivers: by hand, by properties, and the least fleet that is enough."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocator.planning.promise import TOLERANCE, delivered, delivered_share, needed
from allocator.planning.utilisation import MEASURED, Utilisation
from tests.planning.questions import IDEAL

HALVES = np.array([0.5, 0.5])


def got(gpus: int, demand: Any, shares: Any = HALVES, utilisation: Utilisation = IDEAL) -> list[float]:
    return [float(x) for x in delivered(np.array(gpus), np.array(demand, dtype=float), np.array(shares), utilisation)]


def test_what_fits_is_delivered() -> None:
    assert got(100, [20, 70]) == [20, 70]


def test_what_does_not_fit_is_split_by_share_and_what_one_leaves_goes_to_the_others() -> None:
    # 100 GPUs: the first wants less than its 50, the second gets the other 80.
    assert got(100, [20, 200]) == [20, 80]
    assert got(100, [200, 200], [0.8, 0.2]) == pytest.approx([80, 20])
    # Levels: the second and third share 90 as 3 : 1, once the first has its 10.
    assert got(100, [10, 200, 200], [0.2, 0.6, 0.2]) == pytest.approx([10, 67.5, 22.5])


def test_without_a_share_or_without_gpus_nothing_is_promised() -> None:
    assert got(100, [30, 30], [1.0, 0.0]) == [30, 0]
    assert got(0, [30, 30]) == [0, 0]


def test_losses_are_everybodys_below_saturation_and_go_by_share_in_it() -> None:
    lossy = Utilisation(loads=(0.5, 0.9, 1.2), delivered=(1.0, 0.9, 0.75))
    assert got(100, [10, 40], utilisation=lossy) == [10, 40]
    assert got(100, [10, 60], utilisation=lossy) == pytest.approx([0.95 * 10, 0.95 * 60])
    # 120 asked for, 90 delivered: the first is below its share and loses a tenth as everybody does, the second all the rest.
    assert got(100, [20, 100], utilisation=lossy) == pytest.approx([18, 72])
    # Ten times as much asked for: still 90 GPUs are busy.
    assert sum(got(100, [200, 1000], utilisation=lossy)) == pytest.approx(90)


def test_a_share_is_cut_at_one_and_whole_where_nothing_is_owed() -> None:
    share = delivered_share(np.array(100), np.array([20.0, 90.0]), np.array([0.0, 45.0]), HALVES, IDEAL)
    assert share.tolist() == [1, 1]


amounts = st.lists(st.integers(0, 400), min_size=1, max_size=5)


@st.composite
def markets(draw: st.DrawFn) -> tuple[Any, Any, Any]:
    demand = np.array(draw(amounts), dtype=float)
    weights = np.array(draw(st.lists(st.integers(1, 9), min_size=len(demand), max_size=len(demand))), dtype=float)
    pledge = draw(st.one_of(st.just(np.inf), st.integers(1, 800)))
    shares = weights / weights.sum()
    return demand, shares, np.minimum(demand, shares * pledge)


@settings(max_examples=100, deadline=None)
@given(markets(), st.integers(0, 500), st.integers(0, 200), st.sampled_from([IDEAL, MEASURED]))
def test_more_gpus_deliver_no_less_and_never_more_than_there_are(
    market: Any, gpus: int, more: int, utilisation: Utilisation
) -> None:
    demand, shares, _ = market
    few = delivered(np.array(gpus), demand, shares, utilisation)
    many = delivered(np.array(gpus + more), demand, shares, utilisation)
    assert few.sum() <= gpus + 1e-6
    assert np.all(few <= demand + 1e-9)
    assert np.all(many >= few - 1e-9)
    level = [x / b for x, d, b in zip(few, demand, shares, strict=True) if x < utilisation.most(np.array(9.0)) * d - 1e-6]
    assert all(x / b <= min(level) + 1e-6 for x, b in zip(few, shares, strict=True) if level)


@settings(max_examples=100, deadline=None)
@given(markets(), st.sampled_from([0.5, 0.9, 0.95, 0.98]), st.sampled_from([IDEAL, MEASURED]))
def test_the_least_fleet_is_enough_and_one_gpu_less_is_not(market: Any, share: float, utilisation: Utilisation) -> None:
    demand, shares, owed = market
    required = np.full(len(demand), share)
    least = int(needed(demand, owed, shares, required, utilisation))

    def enough(gpus: int) -> bool:
        return bool(np.all(delivered_share(np.array(gpus), demand, owed, shares, utilisation) >= required - TOLERANCE))

    assert enough(least)
    assert least == 0 or not enough(least - 1)


def test_needs_of_many_scenarios_are_those_of_each() -> None:
    demand = np.array([[10.0, 60.0], [80.0, 80.0], [0.0, 0.0]])
    together = needed(demand, demand, HALVES, np.full(2, 0.9), MEASURED)
    assert together.tolist() == [int(needed(row, row, HALVES, np.full(2, 0.9), MEASURED)) for row in demand]
