"""Everything is killed at random instants, under load: no job is lost, none runs twice or elsewhere, promises are kept."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from allocator.dispatch.launcher import LauncherError
from tests.conftest import also_long
from tests.slurm.cluster import SlurmCluster
from tests.slurm.live import PATIENT, Site

pytestmark = pytest.mark.slow

CONFIG = """
[policy]
protection_cap = 6
notice = 5
[qos.default]
min_runtime = 6
restart_time = 1
"""
SECONDS = (1, 3, 5, 8)
"""How long jobs run: the longest outlast their promise, and can be stopped."""


@pytest.fixture
def site(cluster: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("SLURM_CONF", str(cluster.conf))
    site = Site(cluster, tmp_path, CONFIG)
    yield site
    site.clear()


IN_CHARGE = "in charge of"
"""What the dispatcher says when it begins."""


class Service:
    """The dispatcher as a process of its own, as it runs in production."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        site = self._site
        options = ["--journal", str(site.journal_file), "--config", str(site.config), "--record", str(site.folder / "record")]
        command = [sys.executable, "-m", "allocator", "dispatch", "slurm", "-v", "--engine", "greedy", "--interval", "0.2"]
        log = (site.folder / "dispatcher.log").open("ab")
        begun = self._log().count(IN_CHARGE)
        with log:
            self.process = subprocess.Popen([*command, *options], env=os.environ, stdout=log, stderr=log)
        site.cluster.wait(lambda: self._log().count(IN_CHARGE) > begun, PATIENT, "the dispatcher")

    def _log(self) -> str:
        return (self._site.folder / "dispatcher.log").read_text()

    def kill(self) -> None:
        assert self.process is not None
        assert self.process.poll() is None, self._log()[-3000:]
        self.process.kill()
        self.process.wait()


def submit_some(site: Site, rng: random.Random, number: int) -> list[str]:
    """Gangs of all sizes from both projects."""
    shapes = [
        ("-N1", "--gpus-per-node=1"),
        ("-N1", "--gpus-per-node=8"),
        ("-N2", "--gpus-per-node=8"),
        ("-N3", "--gpus-per-node=8"),
    ]
    return [site.submit(rng.choice(("nlp", "vision")), *rng.choice(shapes), seconds=rng.choice(SECONDS)) for _ in range(number)]


def finish(site: Site, jobs: list[str], seconds: float, *, ghosts: bool = False) -> None:
    """Let a last dispatcher bring everything to its end.

    With `ghosts` a job that Slurm shows as running has ended all the same if its own log says so: the controller was killed
    before it had saved the end, and finds out only minutes later.
    """
    dispatcher = site.dispatcher(patience=20)  # what waits for a node that only seems free is to be tried elsewhere
    end = time.monotonic() + seconds
    while left := [job for job in jobs if not _is_done(site, job, ghosts=ghosts)]:
        assert time.monotonic() < end, {job: (site.states().get(job), site.starts(job)) for job in left}
        with contextlib.suppress(LauncherError):  # a controller that has just come back takes its time
            dispatcher.epoch()
        time.sleep(0.3)
    dispatcher.epoch()
    assert dispatcher._journal.undertaking() is None
    shown = {key for key, state in site.states().items() if state == "RUNNING"}
    held = {row["id"] for row in dispatcher._journal.rows("jobs") if row["held"]}
    assert held == shown, "the journal knows what runs"


def _is_done(site: Site, job: str, *, ghosts: bool) -> bool:
    state, starts = site.states().get(job), site.starts(job)
    return state in ("COMPLETED", None) or (ghosts and state == "RUNNING" and bool(starts) and starts[-1].ended == "END")


LAG = 10.0
"""Seconds for which slurmctld holds back what it knows before it saves it: an end inside them it may forget when it is killed,
and then shows the job as waiting again. No dispatcher can tell such a job from one that never ran to its end."""


def check(site: Site, jobs: list[str], *, kills: Sequence[float] = ()) -> None:
    """What the jobs themselves have seen."""
    stops = [row.workload for _, decision in site.epochs() for row in decision.preemptions]
    for job in jobs:
        starts = site.starts(job)
        assert starts, f"{job} was lost"
        assert starts[-1].ended == "END", f"{job} did not come to its end: {site.states().get(job)}, {starts}"
        again = [began for began in starts[:-1] if began.ended == "END"]
        forgotten = [began for began in again if any(kill - LAG < began.ended_at < kill + LAG for kill in kills)]
        assert again == forgotten, f"{job} ran again after its end: {starts}"
        if not kills:
            assert [began.incarnation for began in starts] == list(range(len(starts))), f"{job} began twice: {starts}"
            assert len(starts) - 1 <= stops.count(job), f"{job} was restarted without a stop: {starts}"
    site.check_record()


@also_long
def test_the_dispatcher_is_killed_again_and_again(site: Site, fuzzing: bool) -> None:
    rng = random.Random(1)
    service, jobs = Service(site), []
    for _ in range(50 if fuzzing else 3):
        jobs += submit_some(site, rng, 6)
        service.start()
        time.sleep(rng.uniform(0.0, 3.0))
        service.kill()
    finish(site, jobs, 1200 if fuzzing else 2 * PATIENT)
    check(site, jobs)


@pytest.mark.fuzz  # it hangs on how soon Slurm saves its state, which a busy machine can put off for a minute
def test_the_controller_is_killed_again_and_again(site: Site, fuzzing: bool) -> None:
    rng = random.Random(2)
    service, jobs, kills = Service(site), [], []
    service.start()
    for _ in range(10 if fuzzing else 1):
        jobs += submit_some(site, rng, 16)
        site.cluster.wait_until_saved()  # a submission that was not saved yet would be lost by Slurm itself
        time.sleep(rng.uniform(0, LAG))
        kills.append(time.time())
        site.cluster.kill("slurmctld")
        site.cluster.start_controller()
    service.kill()
    finish(site, jobs, 1200 if fuzzing else 2 * PATIENT, ghosts=True)
    check(site, jobs, kills=kills)
