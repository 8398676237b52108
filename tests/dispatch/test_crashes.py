"""The dispatcher is killed at every step between intent and effect; the next one converges."""

from __future__ import annotations

import random
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from allocator.dispatch.launcher import LauncherError
from tests.conftest import FUZZ, also_long
from tests.dispatch.fake import ForgetsOne, KilledError, Ticker, Unreliable
from tests.dispatch.site import PROMISE, Site

JOBS = ("a1", "a2", "a3", "a4", "b1", "b2", "b3")


def contested(folder: Path, journal: str | None = None) -> Site:
    """Four nodes held by project a, whose promises have lapsed, and work of b that is owed half of them; one stray."""
    site = Site(folder, journal=journal)
    for number in range(1, 5):
        site.scheduler.submit(f"a{number}", "a")
    site.epochs(1)
    assert len(site.scheduler.starts) == 4
    site.scheduler.now += PROMISE + 10
    site.scheduler.submit("b1", "b", num_nodes=2)
    site.scheduler.submit("b2", "b", gpus=4)
    site.scheduler.submit("b3", "b", gpus=4, held=False, wanted_nodes=("n1",))
    return site


def one_epoch(site: Site, kill_at: int | None) -> tuple[bool, int]:
    """One epoch of a new dispatcher; whether it was killed, and how many steps it took."""
    ticker = Ticker(kill_at)
    try:
        site.dispatcher(ticker).epoch()
    except KilledError:
        return True, ticker.count
    return False, ticker.count


def test_an_epoch_that_is_killed_at_any_step_is_brought_to_its_end(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    whole.mkdir()
    site = contested(whole)
    killed, steps = one_epoch(site, None)
    assert not killed
    assert any(start.job == "b1" for start in site.scheduler.starts), "the epoch has stops and starts"
    assert steps >= 25
    for step in range(0, steps, 1 if FUZZ else 2):
        folder = tmp_path / str(step)
        folder.mkdir()
        site = contested(folder)
        assert one_epoch(site, step)[0], f"step {step} is not reached"
        site.scheduler.now += 1
        site.epochs(2)
        site.check(JOBS)
        assert any(start.job == "b1" for start in site.scheduler.starts), f"killed at step {step}, b1 never starts"


def test_killed_while_it_recovers_and_again(tmp_path: Path) -> None:
    for first in (25, 35, 45):
        for second in range(0, 12, 3):
            folder = tmp_path / f"{first}-{second}"
            folder.mkdir()
            site = contested(folder)
            one_epoch(site, first)
            one_epoch(site, second)
            site.scheduler.now += 1
            site.epochs(2)
            site.check(JOBS)


@pytest.mark.parametrize("forgotten", range(6))
def test_an_order_that_is_forgotten_before_the_dispatcher_is_killed(tmp_path: Path, forgotten: int) -> None:
    for step in (12, 16, 20, 24, None):
        folder = tmp_path / str(step)
        folder.mkdir()
        site = contested(folder)
        site.scheduler.unreliable = ForgetsOne(which=forgotten)
        one_epoch(site, step)
        site.scheduler.now += 200
        site.scheduler.fail_node("n3")
        site.epochs(3)
        site.check(JOBS)


@also_long
@example(seed=228, forgets=0.3, refuses=0.0, kills=[13])
@example(seed=17354, forgets=0.1, refuses=0.0, kills=[24])
@settings(max_examples=300 if FUZZ else 12)
@given(
    seed=st.integers(0, 2**32 - 1),
    forgets=st.sampled_from((0.0, 0.1, 0.3)),
    refuses=st.sampled_from((0.0, 0.05)),
    kills=st.lists(st.integers(0, 90), min_size=1, max_size=4),
)
def test_whatever_fails_it_converges(seed: int, forgets: float, refuses: float, kills: list[int]) -> None:
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        site = contested(Path(folder))
        site.scheduler.unreliable = Unreliable(rng, forgets, refuses)
        for kill_at in kills:
            with suppress(LauncherError):
                one_epoch(site, kill_at)
            site.scheduler.now += rng.randrange(1, 400)
            if rng.random() < 0.3:
                site.scheduler.fail_node(rng.choice(("n3", "n4")))
        site.scheduler.unreliable = Unreliable()
        site.epochs(4)
        site.check(JOBS)
