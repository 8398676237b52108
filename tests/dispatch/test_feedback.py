"""What owners of jobs are told: what has changed, not too often, in one line, and never over an administrator's words."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.dispatch.config import Feedback, load_config
from allocator.dispatch.facts import View
from allocator.dispatch.feedback import LONGEST, Speaker
from allocator.dispatch.plan import MARK
from allocator.dispatch.slurm.jobs import read_jobs
from allocator.domain import SnapshotError
from tests.dispatch.fake import FakeScheduler
from tests.dispatch.site import CONFIG, Site

LIMITS = Feedback(interval=60, most=2)


class Scene:
    """A speaker, and a clock that the test moves."""

    def __init__(self, *jobs: str) -> None:
        self.scheduler, self.now = FakeScheduler(), 0.0
        for key in jobs:
            self.scheduler.submit(key, "a")
        self.speaker = Speaker(self.scheduler, lambda: self.now)

    def say(self, **texts: str) -> dict[str, str]:
        """What is really said of it."""
        before = len(self.scheduler.said)
        self.speaker.say(texts, self.scheduler.view(), LIMITS)
        return {key: text for said in self.scheduler.said[before:] for key, text in said.items()}


def test_only_what_has_changed_is_said() -> None:
    scene = Scene("j")
    assert scene.say(j="waits for x") == {"j": "allocator: waits for x"}
    scene.now = 1000
    assert scene.say(j="waits for x") == {}
    assert scene.say(j="waits for y") == {"j": "allocator: waits for y"}


def test_a_job_is_not_told_too_often_and_not_all_at_once() -> None:
    scene = Scene("a", "b", "c")
    assert list(scene.say(a="1", b="1", c="1")) == ["a", "b"]
    assert list(scene.say(a="2", b="2", c="2")) == ["c"]
    scene.now = 59
    assert scene.say(a="2", b="2", c="2") == {}
    scene.now = 60
    assert list(scene.say(a="2", b="2", c="2")) == ["a", "b"]


def test_the_words_of_an_administrator_stay() -> None:
    scene = Scene("j")
    scene.scheduler.jobs["j"] = replace(scene.scheduler.jobs["j"], said="see ticket 5")
    assert scene.say(j="waits") == {}


def test_what_cannot_be_said_costs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene("j")
    view = scene.scheduler.view()
    scene.scheduler.unreliable.refuses = 1.0
    with caplog.at_level(logging.WARNING):
        scene.speaker.say({"j": "waits"}, view, LIMITS)
    assert "owners are not told" in caplog.text
    scene.scheduler.unreliable.refuses = 0.0
    scene.now = 60
    assert scene.say(j="waits")


@given(st.text(max_size=400))
def test_a_message_is_one_line_between_quotes(text: str) -> None:
    scene = Scene("j")
    (said,) = scene.say(j=text).values()
    assert said.startswith(MARK)
    assert len(said) <= LONGEST
    assert said.isascii()
    assert said.isprintable()
    assert not set(said) & set('"\\`')


def test_tasks_that_wait_as_one_record_are_told_as_one() -> None:
    records = [
        {"job_id": 7, "array_job_id": 7, "array_task_string": "0-3", "job_state": "PENDING", "tres_per_node": "gres:gpu:1"},
        {"job_id": 9, "array_job_id": 7, "array_task_id": 5, "job_state": "PENDING", "admin_comment": '"allocator: x"'},
    ]
    jobs = read_jobs(records, now=1)
    assert {key: job.record for key, job in jobs.items()} == {"7_5": "", **{f"7_{task}": "7_[0-3]" for task in range(4)}}
    assert jobs["7_5"].said == "allocator: x"
    (shortened,) = read_jobs([{**records[0], "array_task_string": "0,...%1"}], now=1).values()
    assert shortened.record == ""
    told: list[dict[str, str]] = []
    scheduler = FakeScheduler()
    scheduler.say = lambda texts: told.append(dict(texts))  # type: ignore[method-assign]
    view = View(now=1, jobs=jobs, nodes={})
    Speaker(scheduler).say(dict.fromkeys(jobs, "waits"), view, Feedback())
    assert told == [{"7_[0-3]": "allocator: waits", "7_5": "allocator: waits"}]


def test_a_record_that_a_task_has_left_is_not_named(tmp_path: Path) -> None:
    """The record would be named with the task that runs now, and all of its tasks be told of that one's promise."""
    site = Site(tmp_path)
    site.config = replace(CONFIG, feedback=Feedback())
    for task in range(3):
        site.scheduler.submit(f"7_{task}", "a", num_nodes=4, record="7_[0-2]")
    site.scheduler.said.clear()
    site.epochs(1)
    assert [start.job for start in site.scheduler.starts] == ["7_0"]
    assert site.scheduler.said == []
    for task in range(3):
        record = "" if task == 0 else "7_[1-2]"
        site.scheduler.jobs[f"7_{task}"] = replace(site.scheduler.jobs[f"7_{task}"], record=record)
    site.epochs(1)
    (said,) = site.scheduler.said
    assert set(said) == {"7_0", "7_[1-2]"}
    assert said["7_0"].startswith("allocator: promised until ")


def test_why_it_waits_and_what_it_is_promised(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.config = replace(CONFIG, feedback=Feedback())
    site.scheduler.submit("big", "a", num_nodes=4)
    site.scheduler.submit("odd", "a", problem="heterogeneous jobs cannot be placed")
    site.epochs(1)
    site.scheduler.submit("late", "b", num_nodes=4)
    site.epochs(1)
    said = {key: job.said for key, job in site.scheduler.jobs.items()}
    assert said["big"].startswith("allocator: promised until ")
    assert said["odd"] == "allocator: heterogeneous jobs cannot be placed"
    assert "in the way: big" in said["late"] or "promise" in said["late"]
    site.scheduler.now += 700
    site.epochs(4)
    assert site.scheduler.jobs["late"].said.startswith("allocator: promised until ")
    assert not site.scheduler.jobs["big"].said.startswith("allocator: promised until ")


def test_a_start_that_was_not_followed_is_told(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.config = replace(CONFIG, feedback=Feedback())
    site.scheduler.submit("j", "a")
    dispatcher = site.dispatcher()
    site.scheduler.release = lambda jobs: None  # type: ignore[method-assign]
    dispatcher.epoch()
    assert "tried again from" in site.scheduler.jobs["j"].said


def test_without_the_table_nothing_is_told(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.scheduler.submit("j", "a")
    site.epochs(2)
    assert site.scheduler.said == []


def test_the_table_of_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text("[feedback]\n")
    assert load_config(tmp_path / "c.toml").feedback == Feedback(interval=60, most=100)
    (tmp_path / "c.toml").write_text("[feedback]\ninterval = 0")
    with pytest.raises(SnapshotError, match="interval"):
        load_config(tmp_path / "c.toml")
