"""Epochs on a fake scheduler: what is told, refused, taken back, rehearsed and watched."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from allocator.dispatch.config import Config, Maintenance
from allocator.dispatch.facts import JobState, NodeCondition
from allocator.dispatch.journal import Journal
from allocator.dispatch.launcher import LauncherError
from allocator.dispatch.settle import FIRST_RETRY
from tests.dispatch.fake import ForgetsOne
from tests.dispatch.site import CONFIG, PROMISE, Site


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_promises_stops_and_usage_are_kept(site: Site) -> None:
    for number in range(1, 5):
        site.scheduler.submit(f"a{number}", "a")
    (first,) = site.epochs(1)
    began = first.decision.now
    site.scheduler.submit("b1", "b", num_nodes=2)
    site.epochs(2)
    assert all(job.state is JobState.RUNNING for key, job in site.scheduler.jobs.items() if key[0] == "a"), "protected"
    site.scheduler.now = began + PROMISE + 5
    (last, _) = site.epochs(2)
    assert last.effects is not None
    assert last.effects.started == {"b1"}
    assert len(last.effects.stopped) == 2
    memory = site.memory()
    for key in last.effects.stopped:
        kept = memory.jobs[key]
        assert (kept.preempted, kept.submit_time, kept.held) == (1, began, None)
        assert kept.stopped is not None
    assert {(record.gpus, record.charged) for record in memory.usage} == {(8, True)}
    site.scheduler.end("b1")
    site.epochs(1)
    assert "b1" not in site.memory().jobs
    rows = Journal(site.file).rows("usage")
    assert {row["job"] for row in rows} == {*last.effects.stopped, "b1"}
    assert {row["user"] for row in rows} == {"u"}


def test_what_the_scheduler_refuses_is_not_tried_every_epoch(site: Site) -> None:
    site.scheduler.submit("a1", "a")
    site.scheduler.fail_node("n1")
    scheduler = site.scheduler
    release = scheduler.release

    def blocked(jobs: list[str]) -> None:
        release(jobs)
        for job in jobs:
            scheduler.jobs[job] = replace(scheduler.jobs[job], blocked=True, num_nodes=9)  # it never fits now

    scheduler.release = blocked  # type: ignore[method-assign, assignment]
    (first,) = site.epochs(1, seconds=1)
    assert first.effects is not None
    assert first.effects.refused == {"a1"}
    assert scheduler.jobs["a1"].held
    assert not scheduler.jobs["a1"].wanted_nodes
    kept = site.memory().jobs["a1"]
    assert (kept.failed_starts, kept.retry_at) == (1, first.decision.now + FIRST_RETRY)
    (second,) = site.epochs(1)
    assert not second.decision.starts
    scheduler.release = release  # type: ignore[method-assign]
    scheduler.jobs["a1"] = replace(scheduler.jobs["a1"], blocked=False, num_nodes=1)
    scheduler.now += FIRST_RETRY
    site.epochs(1)
    assert site.memory().jobs["a1"].failed_starts == 0
    assert scheduler.jobs["a1"].state is JobState.RUNNING


def test_what_is_not_placed_is_not_released(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.scheduler.submit("a1", "a")
    monkeypatch.setattr(site.scheduler, "place", lambda _: None)
    (epoch,) = site.epochs(1)
    assert epoch.effects is not None
    assert epoch.effects.refused == {"a1"}
    assert not site.scheduler.starts


def test_what_lies_elsewhere_is_stopped(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.scheduler.submit("a1", "a")
    release, scheduler = site.scheduler.release, site.scheduler

    def elsewhere(jobs: list[str]) -> None:
        for job in jobs:
            scheduler.jobs[job] = replace(scheduler.jobs[job], wanted_nodes=("n4",))
        release(jobs)

    monkeypatch.setattr(scheduler, "release", elsewhere)
    (epoch,) = site.epochs(1)
    assert epoch.decision.starts[0].placement != {"n4": 1}
    assert epoch.effects is not None
    assert not epoch.effects.started
    assert scheduler.jobs["a1"].state is JobState.WAITING
    assert scheduler.jobs["a1"].held
    assert site.memory().jobs["a1"].held is None


def test_what_was_released_is_held_again_before_its_nodes_are_forgotten(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.scheduler.submit("a1", "a")
    scheduler = site.scheduler
    release, hold = scheduler.release, scheduler.hold
    told: list[tuple[str, ...]] = []

    def too_large(jobs: list[str]) -> None:
        release(jobs)
        scheduler.jobs["a1"] = replace(scheduler.jobs["a1"], num_nodes=9)  # it never fits now

    def forgotten_once(jobs: list[str]) -> None:
        told.append(scheduler.jobs["a1"].wanted_nodes)
        if len(told) > 1:
            hold(jobs)

    monkeypatch.setattr(scheduler, "release", too_large)
    monkeypatch.setattr(scheduler, "hold", forgotten_once)
    site.epochs(1)
    assert len(told) == 2
    assert all(told), "it has its nodes for as long as it is not held: it could start anywhere without them"
    assert scheduler.jobs["a1"].held
    assert not scheduler.jobs["a1"].wanted_nodes
    assert not scheduler.starts


def test_what_would_start_by_itself_is_held_until_it_shows(site: Site) -> None:
    site.scheduler.submit("a1", "a", num_nodes=9, held=False)
    site.scheduler.unreliable = ForgetsOne()
    site.epochs(1)
    assert site.scheduler.jobs["a1"].held


def test_what_cannot_be_held_keeps_nobody_waiting(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    site.scheduler.submit("a1", "a", num_nodes=9, held=False, wanted_nodes=("n1",))
    site.scheduler.submit("b1", "b")
    monkeypatch.setattr(site.scheduler, "hold", lambda _: None)
    site.epochs(1)
    assert "cannot be held, and may start by themselves: a1" in caplog.text
    assert site.scheduler.jobs["a1"].wanted_nodes == ("n1",)
    assert site.scheduler.jobs["b1"].state is JobState.RUNNING


def test_what_cannot_be_taken_back_stays_open(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.scheduler.submit("a1", "a")
    scheduler = site.scheduler
    with monkeypatch.context() as patch:
        patch.setattr(
            scheduler,
            "release",
            lambda jobs: [scheduler.jobs.update({j: replace(scheduler.jobs[j], held=False, num_nodes=9)}) for j in jobs],
        )
        patch.setattr(scheduler, "hold", lambda _: None)
        with pytest.raises(LauncherError, match="cannot be taken back: a1"):
            site.dispatcher().epoch()
    scheduler.jobs["a1"] = replace(scheduler.jobs["a1"], num_nodes=1)
    site.epochs(2)
    assert scheduler.jobs["a1"].state is JobState.RUNNING


def _node_fails(site: Site, node: str) -> None:
    site.scheduler.fail_node(node)


def _controller_crashes(site: Site, _node: str) -> None:
    site.scheduler.forget("a1")


def _user_requeues(site: Site, _node: str) -> None:
    site.scheduler.stop(["a1"])
    site.scheduler.view()


@pytest.mark.parametrize("ending", [_node_fails, _controller_crashes, _user_requeues])
def test_a_restart_keeps_apart_from_the_run_that_has_just_ended(site: Site, ending: Callable[[Site, str], None]) -> None:
    site.scheduler.submit("a1", "a", num_nodes=2)
    began = site.scheduler.now
    (first,) = site.epochs(1, seconds=0)
    assert site.scheduler.now == began, "nothing is waited for where no job has run"
    ending(site, min(first.decision.starts[0].placement))
    (second,) = site.epochs(1, seconds=0)
    assert second.decision.starts, "it is restarted in the very epoch in which its end is seen"
    assert not site.scheduler.stillborn
    assert second.effects is not None
    assert second.effects.started == {"a1"}
    assert site.scheduler.jobs["a1"].state is JobState.RUNNING
    assert site.scheduler.now > began


def test_maintenance_drains_and_takes_back(site: Site) -> None:
    now = site.scheduler.now
    window = Maintenance(nodes=("n1",), start=now, end=now + 60, reason="firmware")
    site.config = replace(CONFIG, maintenance=(window,))
    site.epochs(1)
    shown = [site.scheduler.nodes["n1"].condition]
    site.scheduler.now = now + 60
    site.epochs(1)
    shown.append(site.scheduler.nodes["n1"].condition)
    assert shown == [NodeCondition.DRAIN, NodeCondition.OPEN]


def test_a_rehearsal_changes_nothing(site: Site) -> None:
    site.scheduler.submit("a1", "a")
    before = site.scheduler.jobs["a1"]
    epoch = site.dispatcher().rehearse()
    assert epoch.orders.lines == [f"start a1 on {next(iter(epoch.decision.starts[0].placement))}"]
    assert site.scheduler.jobs["a1"] == before
    assert site.memory().jobs == {}


def test_a_shadow_remembers_what_runs_and_does_nothing(site: Site) -> None:
    site.scheduler.submit("a1", "a")
    site.scheduler.submit("b1", "b", held=False, wanted_nodes=("n2",))
    dispatcher = site.dispatcher()
    dispatcher.watch()
    site.scheduler.now += 5
    dispatcher.watch()
    assert site.scheduler.jobs["a1"].state is JobState.WAITING
    assert site.scheduler.jobs["b1"].state is JobState.RUNNING
    assert site.memory().jobs["b1"].held is not None


def test_a_clock_that_goes_back_undoes_nothing(site: Site) -> None:
    site.scheduler.submit("a1", "a")
    (first,) = site.epochs(1)
    site.scheduler.now -= 500
    (second,) = site.epochs(1)
    assert second.decision.now >= first.decision.now


def test_what_goes_wrong_is_told_and_the_loop_goes_on(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    stop, seen = threading.Event(), 0

    def config() -> Config:
        nonlocal seen
        seen += 1
        if seen == 3:
            stop.set()
        if seen == 2:
            raise LauncherError("away")
        return CONFIG

    dispatcher = site.dispatcher()
    dispatcher._config = config
    epochs: list[object] = []
    with caplog.at_level(logging.ERROR):
        dispatcher.run(0.001, stop, epochs.append)
    assert len(epochs) == 2
    assert "given up: away" in caplog.text
