"""The arithmetic of runs, against a run that is lived second by second."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from allocator.replay.progress import Pace


def test_a_plain_run_takes_as_long_as_its_work() -> None:
    assert Pace().length(100) == 100
    assert Pace().split(60) == (0, 0, 0, 60)


def test_checkpoints_take_the_end_of_each_interval() -> None:
    # Useful: [0, 8), [10, 18), [20, 24): 20 s of work in 24 s.
    pace = Pace(interval=10, cost=2)
    assert pace.length(20) == 24
    assert pace.split(24) == (0, 4, 0, 20)
    assert [pace.saved(length) for length in (9, 10, 19, 20)] == [0, 8, 8, 16]


def test_a_restart_comes_first_and_may_swallow_a_checkpoint() -> None:
    # Restart [0, 12) covers the checkpoint [8, 10); useful from 12 to 18, then the next checkpoint [18, 20), then on.
    pace = Pace(restart=12, interval=10, cost=2)
    assert pace.split(20) == (12, 2, 0, 6)
    assert pace.length(7) == 21


def test_half_speed_takes_twice_as_long() -> None:
    pace = Pace(num=1, den=2)
    assert pace.length(10) == 20
    assert pace.split(15) == (0, 0, 8, 7)  # work is rounded down


@st.composite
def paces(draw: st.DrawFn) -> Pace:
    interval = draw(st.integers(0, 12))
    cost = draw(st.integers(0, interval - 1)) if interval else 0
    den = draw(st.integers(1, 9))
    return Pace(draw(st.integers(0, 30)), interval, cost, draw(st.integers(1, den)), den)


@given(pace=paces(), length=st.integers(0, 80))
def test_every_second_goes_where_it_should(pace: Pace, length: int) -> None:
    useful = writing = 0
    for second in range(length):
        if second < pace.restart:
            continue
        if pace.interval and second % pace.interval >= pace.interval - pace.cost:
            writing += 1
        else:
            useful += 1
    work = useful * pace.num // pace.den
    assert pace.split(length) == (min(length, pace.restart), writing, useful - work, work)


@given(pace=paces(), work=st.integers(1, 60))
def test_the_length_of_a_run_is_the_shortest_that_does_the_work(pace: Pace, work: int) -> None:
    length = pace.length(work)
    assert pace.work(length) == work
    assert pace.work(length - 1) < work
