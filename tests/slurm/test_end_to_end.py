"""A real Slurm with the allocator in charge: what it decides is what runs."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from allocator.dispatch.config import Config, Feedback, Maintenance
from allocator.dispatch.facts import NodeCondition
from allocator.dispatch.journal import Journal
from allocator.dispatch.slurm.history import read_history
from allocator.wire.snapshot_doc import PolicyDoc
from tests.conftest import also_long
from tests.slurm.cluster import SlurmCluster
from tests.slurm.live import PATIENT, Site

pytestmark = pytest.mark.slow

PROMISE = 600
"""Seconds that work is promised here: longer than a test takes, however slow the machine. Tests put the clock forward."""

CONFIG = Config(
    policy=PolicyDoc(protection_cap=PROMISE, notice=5), qos={"default": {"min_runtime": PROMISE, "restart_time": 1}}
)


@pytest.fixture
def site(cluster: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("SLURM_CONF", str(cluster.conf))
    site = Site(cluster, tmp_path)
    yield site
    site.clear()


def test_every_kind_of_job_runs_on_exactly_the_decided_nodes(site: Site) -> None:
    jobs = [
        site.submit("nlp", "-N2", "--gpus-per-node=8"),
        site.submit("nlp", "-N1", "--gres=gpu:h100:2"),
        site.submit("vision", "--gpus=16"),
        site.submit("vision", "-N1", "-n4", "--gpus-per-task=1"),
        site.submit("vision", "-N2", "--gpus-per-node=2"),
        site.submit("nlp", "--array=0-1", "--gpus-per-node=1", "-N1"),
    ]
    after = site.submit("nlp", "-N1", "--gpus-per-node=1", f"--dependency=afterok:{jobs[0]}")
    epoch = site.dispatcher(lambda: CONFIG).epoch()
    assert epoch.effects is not None
    placements = {row.workload: frozenset(row.placement) for row in epoch.decision.starts}
    assert set(placements) == {*jobs[:-1], f"{jobs[-1]}_0", f"{jobs[-1]}_1"}
    assert epoch.effects.started == set(placements)
    assert after not in placements
    site.wait_for_starts(placements)
    for job, nodes in placements.items():
        assert [began.nodes for began in site.starts(job)] == [nodes]
        assert site.nodes_of(job) == nodes
    assert len(placements[jobs[2]]) == 2
    assert len(placements[jobs[4]]) == 2
    site.check_record()


def test_fair_share_preempts_after_the_promise_and_reserves_before(site: Site) -> None:
    dispatcher = site.dispatcher(lambda: CONFIG)
    filling = [site.submit("nlp", "-N2", "--gpus-per-node=8") for _ in range(8)]
    first = dispatcher.epoch()
    assert first.effects is not None
    assert first.effects.started == set(filling)
    gang = site.submit("vision", "-N8", "--gpus-per-node=8")
    site.later(1)  # at the very instant at which they start the others count as waiting, and are owed as much
    second = dispatcher.epoch()
    assert not second.decision.preemptions, "what is promised is not stopped"
    assert [held.workload for held in second.decision.reservations] == [gang]
    assert second.decision.reservations[0].bound <= second.decision.now + 2 * PROMISE + 60
    site.later(PROMISE)
    done = site.until(dispatcher, lambda epoch: epoch.effects is not None and gang in epoch.effects.started)
    assert site.nodes_of(gang) == next(frozenset(row.placement) for row in done.decision.starts if row.workload == gang)
    assert len(site.nodes_of(gang)) == 8
    stopped = {row.workload for _, decision in site.epochs() for row in decision.preemptions}
    assert 0 < len(stopped) <= 4
    states = site.states()
    assert all(states[job] == "PENDING" for job in stopped)
    later = dispatcher.epoch()
    waiting = {work.id: work for work in later.snapshot.workloads}
    for job in stopped:
        assert waiting[job].preempted == 1
        assert waiting[job].submit_time <= first.decision.now, "the queue remembers the first submission"
    site.check_record()


def test_a_drained_node_empties_when_the_promise_ends(site: Site) -> None:
    dispatcher = site.dispatcher(lambda: CONFIG)
    job = site.submit("nlp", "-N1", "--gpus-per-node=8")
    dispatcher.epoch()
    (node,) = site.nodes_of(job)
    site.cluster.run("scontrol", "update", f"NodeName={node}", "State=DRAIN", "Reason=test")
    try:
        during = dispatcher.epoch()
        assert during.view.nodes[node].condition is NodeCondition.DRAIN
        assert [(row.node, row.drained) for row in during.decision.drains] == [(node, False)]
        assert site.nodes_of(job) == {node}, "its promise holds on a draining node"
        site.wait_for_starts([job])
        site.later(PROMISE)
        done = site.until(dispatcher, lambda epoch: any(row.drained for row in epoch.decision.drains))
        assert done.decision.drains[0].node == node
        site.until(dispatcher, lambda _: bool(site.nodes_of(job)))
        site.wait_for_starts([job], 2)
        assert node not in site.nodes_of(job)
        assert [began.incarnation for began in site.starts(job)] == [0, 1]
    finally:
        site.cluster.run("scontrol", "update", f"NodeName={node}", "State=RESUME")
    site.check_record()


def test_maintenance_drains_and_takes_back(site: Site) -> None:
    now = int(time.time())
    window = Maintenance(nodes=("n16",), start=now - 1, end=now + 600, reason="firmware")
    config = replace(CONFIG, maintenance=(window,))
    site.dispatcher(lambda: config).epoch()
    node = site.launcher.view().nodes["n16"]
    assert (node.condition, node.reason) == (NodeCondition.DRAIN, "allocator: firmware")
    site.dispatcher(lambda: CONFIG).epoch()
    assert site.launcher.view().nodes["n16"].condition is not NodeCondition.DRAIN


def test_a_node_that_dies_is_reported_and_its_job_restarted_elsewhere(site: Site) -> None:
    dispatcher = site.dispatcher(lambda: CONFIG)
    job = site.submit("nlp", "-N2", "--gpus-per-node=8")
    dispatcher.epoch()
    site.wait_for_starts([job])
    nodes = site.nodes_of(job)
    dead = min(nodes)
    site.cluster.run("scontrol", "update", f"NodeName={dead}", "State=DOWN", "Reason=test")
    try:
        site.until(dispatcher, lambda _: bool(site.nodes_of(job)) and dead not in site.nodes_of(job))
        site.wait_for_starts([job], 2)
    finally:
        site.cluster.run("scontrol", "update", f"NodeName={dead}", "State=RESUME")
    kinds = {row["kind"] for row in dispatcher._journal.rows("events") if row["subject"] == job}
    assert "contract_broken" in kinds
    site.check_record()


@also_long
def test_128_starts_of_one_epoch_all_run(site: Site, fuzzing: bool) -> None:
    quiet = ("-Q", "-o", "/dev/null", "-A", "nlp", "-N1", "--gpus-per-node=1")
    site.cluster.run("sbatch", *quiet, "--array=0-371", "--wrap=sleep 600")
    script = "\n".join(
        f"sbatch -Q -o /dev/null -A {account} -N1 --gpus-per-node=1 {site.payload} 3600" for account in ("nlp", "vision") * 64
    )
    site.cluster.run("bash", "-c", script, timeout=PATIENT)
    waiting = [site.submit("nlp", "-N16", "--gpus-per-node=8", "--begin=now+1hour") for _ in range(2)]
    calm = os.getloadavg()[0] < (os.cpu_count() or 1)
    epoch = site.dispatcher(lambda: CONFIG).epoch()
    assert epoch.effects is not None
    assert len(epoch.effects.started) == 128
    seconds = epoch.seconds["carry_out"] + epoch.seconds["finish"]
    # beside other tests, and on a busy machine, the time says nothing of the dispatcher
    assert seconds < 10 or not (fuzzing and calm), f"{seconds:.1f} s"
    assert not set(waiting) & {work.id for work in epoch.snapshot.workloads}
    print({name: round(spent, 3) for name, spent in epoch.seconds.items()})  # noqa: T201


def test_owners_are_told_why_their_jobs_wait(site: Site) -> None:
    dispatcher = site.dispatcher(lambda: replace(CONFIG, feedback=Feedback()))
    running = site.submit("nlp", "-N16", "--gpus-per-node=8")
    dispatcher.epoch()
    waiting = site.submit("vision", "-N12", "--gpus-per-node=8", "--comment=mine")
    array = site.submit("vision", "-N1", "--gpus-per-node=8", "--array=0-3%2")
    epoch = dispatcher.epoch()
    reasons = {row.workload: row.detail for row in epoch.decision.waiting}
    assert site.told(running).startswith("allocator: promised until ")
    assert site.told(waiting)[:60] == f"allocator: {reasons[waiting]}"[:60]
    assert "Comment=mine" in site.cluster.run("scontrol", "-o", "show", "job", waiting)
    shown = site.cluster.run("squeue", "-h", "-j", array, "-o", "%i").split()
    assert shown == [f"{array}_[0-3%2]"], "tasks that wait stay one record"
    assert site.told(array).startswith("allocator: ")
    before = [site.launcher.view().jobs[job].said for job in (running, waiting, f"{array}_0")]
    dispatcher.epoch()
    assert [site.launcher.view().jobs[job].said for job in (running, waiting, f"{array}_0")] == before, "not again at once"


def test_the_accounts_of_slurm_are_imported_once(site: Site, tmp_path: Path) -> None:
    dispatcher = site.dispatcher(lambda: CONFIG)
    short = [site.submit("nlp", "-N1", "--gpus-per-node=8", seconds=2) for _ in range(2)]
    long = site.submit("vision", "-N2", "--gpus-per-node=8")
    dispatcher.epoch()
    site.wait_for_starts([*short, long])
    site.cluster.wait(lambda: all(site.accounted(job) for job in short), PATIENT, "the accounts of jobs that ended")
    dispatcher.epoch()
    own = {record.id: record for record in Journal(str(site.journal_file)).load().usage}
    text = site.sacct()
    history = read_history(text, set(), {})
    assert {*short} <= {row.job for row in history.rows}
    assert long not in {row.job for row in history.rows}, "what still runs is not over"
    journal = Journal(str(site.journal_file))
    assert not {row.job for row in journal.add_usage(history.rows)} & {*short}, "the dispatcher has seen these runs itself"
    fresh = Journal(str(tmp_path / "fresh.db"))
    mine = {row.job: row.record for row in fresh.add_usage(history.rows) if row.job in short}
    assert fresh.add_usage(read_history(site.sacct(), set(), {}).rows) == []
    for record in own.values():
        other = mine[(record.id or "").partition("@")[0]]
        assert (other.allocation, other.pool, other.gpus) == (record.allocation, record.pool, record.gpus)
        assert record.start - 1 <= other.start < other.end, "what is decided is charged from the decision on"
        assert abs(other.end - record.end) <= 2
