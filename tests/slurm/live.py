"""Work on the real Slurm of `cluster`, and what can be said of it from outside: by the jobs' own logs and the record."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from allocator import allocate, load_decision, load_snapshot
from allocator.dispatch.config import Config, load_config
from allocator.dispatch.dispatcher import Dispatcher, Epoch
from allocator.dispatch.execute import Executor, Patience
from allocator.dispatch.journal import Journal
from allocator.dispatch.slurm.commands import Commands
from allocator.dispatch.slurm.launcher import SlurmLauncher
from allocator.domain import Decision, Snapshot
from allocator.generate.hostlist import expand_hosts
from allocator.record import Recorder, recorded
from tests.slurm.cluster import SlurmCluster

PATIENT = 180.0
"""Seconds until a wait is given up. Every wait ends with what it waits for; this is for machines that do much else."""

PAYLOAD = """#!/bin/bash
log={folder}/out/${{SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}}${{SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}}
trap 'echo "TERM $(date +%s.%N)" >> $log; exit 0' TERM
echo "START $(date +%s.%N) ${{SLURM_RESTART_COUNT:-0}} $SLURM_JOB_NODELIST $SLURM_GPUS_ON_NODE" >> $log
end=$(( $(date +%s) + ${{1:-60}} ))
while [ $(date +%s) -lt $end ]; do sleep 0.2 & wait $!; done
echo "END $(date +%s.%N)" >> $log
"""


@dataclass(frozen=True, slots=True)
class Began:
    """One start, as the job itself has seen it."""

    at: float
    incarnation: int
    nodes: frozenset[str]
    ended: str | None
    ended_at: float = 0.0


class Site:
    """A cluster with payload, journal and record."""

    def __init__(self, cluster: SlurmCluster, folder: Path, config: str = "") -> None:
        self.cluster, self.folder = cluster, folder
        for name in ("out", "record"):
            (folder / name).mkdir(exist_ok=True)
        self.payload = folder / "payload.sh"
        self.payload.write_text(PAYLOAD.format(folder=folder))
        self.payload.chmod(0o755)
        self.config = folder / "dispatch.toml"
        self.config.write_text(config)
        self.journal_file = folder / "journal.db"
        self.ahead = 0
        self.launcher = SlurmLauncher(Commands(timeout=120), clock=lambda: time.time() + self.ahead)

    # work

    def submit(self, account: str, *options: str, seconds: int = 3600) -> str:
        """Submit the payload, which outlasts every test unless it is told otherwise; the id of the job."""
        shown = self.cluster.run(
            "sbatch", "--parsable", "-o", "/dev/null", "-A", account, *options, str(self.payload), str(seconds), timeout=PATIENT
        )
        return shown.strip().split(";")[0]

    def clear(self) -> None:
        """End all work and wait until the nodes are empty. Slurm drains a node where it finds a job that it has forgotten."""
        jobs = sorted(set(self.cluster.run("squeue", "-h", "-o", "%A").split()))
        if jobs:
            self.cluster.run("scancel", "--quiet", *jobs, check=False)
        self.cluster.wait(lambda: not self.cluster.run("squeue", "-h", "-o", "%A"), PATIENT, "end of all jobs")
        drained = sorted(set(self.cluster.run("sinfo", "-h", "-N", "-t", "drain", "-o", "%N").split()))
        if drained:
            self.cluster.run("scontrol", "update", f"NodeName={','.join(drained)}", "State=RESUME")
            self.cluster.wait(lambda: self.cluster.idle_nodes() == set(self.cluster.names), PATIENT, "nodes that take work")

    def later(self, seconds: int) -> None:
        """Let time pass for the dispatcher, and for nobody else: a promise ends without anybody waiting for it."""
        self.ahead += seconds

    def wait_for_starts(self, jobs: Iterable[str], number: int = 1) -> None:
        """Wait until the jobs themselves have seen so many starts."""
        jobs = list(jobs)
        self.cluster.wait(lambda: all(len(self.starts(job)) >= number for job in jobs), PATIENT, "the jobs' own logs")

    def starts(self, job: str) -> list[Began]:
        """The starts of a job, from its own log."""
        path = self.folder / "out" / job
        lines = path.read_text().splitlines() if path.exists() else []
        found: list[Began] = []
        for line in lines:
            kind, at, *rest = line.split()
            if kind == "START":
                found.append(Began(float(at), int(rest[0]), frozenset(expand_hosts(rest[1])), None))
            elif found:
                last = found[-1]
                found[-1] = Began(last.at, last.incarnation, last.nodes, kind, float(at))
        return found

    def states(self) -> dict[str, str]:
        """The state of every job that Slurm still knows."""
        shown = self.cluster.run("squeue", "-h", "-t", "all", "-r", "-o", "%i %T")
        return dict(line.split() for line in shown.splitlines())

    def nodes_of(self, job: str) -> frozenset[str]:
        """Where Slurm says that a job runs."""
        return frozenset(expand_hosts(self.cluster.run("squeue", "-h", "-j", job, "-t", "R", "-o", "%N").strip()))

    def told(self, job: str) -> str:
        """What Slurm shows the owner of a job, of the first of its records."""
        shown = self.cluster.run("scontrol", "-o", "show", "job", job).splitlines()[0]
        found = re.search(r' AdminComment="([^"]*)"', shown)
        return found[1] if found else ""

    def sacct(self, *options: str) -> str:
        """Slurm's own accounts of all runs, as the how-to asks for them."""
        columns = "jobid,account,user,qos,start,end,state,alloctres"
        command = ("sacct", "-a", "-D", "-X", "-P", "-S", "now-1day", "-o", columns, *options)
        return self.cluster.run("env", "SLURM_TIME_FORMAT=%s", *command)

    def accounted(self, job: str) -> bool:
        """Whether the accounts of all runs know that a job has ended.

        Asked by id, `sacct -j`, they know it up to five seconds earlier: what ends before slurmctld has told slurmdbd all of it
        (it does so every five seconds) has a row without QOS, which is in no log of all runs yet.
        """
        return any(line.startswith(f"{job}|") and "|COMPLETED|" in line for line in self.sacct().splitlines())

    # the dispatcher in this process

    def dispatcher(self, config: Callable[[], Config] | None = None, patience: float = PATIENT) -> Dispatcher:
        """A dispatcher on this site's journal, recording every epoch."""
        return Dispatcher(
            self.launcher,
            Journal(str(self.journal_file)),
            lambda snapshot: allocate(snapshot, time_limit=5, engine="greedy"),
            Executor(self.launcher, Patience(stop=patience, start=patience)),
            config or (lambda: load_config(self.config)),
            Recorder(self.folder / "record"),
        )

    def until(self, dispatcher: Dispatcher, done: Callable[[Epoch], bool], seconds: float = PATIENT) -> Epoch:
        """Epoch after epoch until one satisfies the condition."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            epoch = dispatcher.epoch()
            if done(epoch):
                return epoch
            time.sleep(0.5)
        raise AssertionError(f"not within {seconds} s: {self.states()}")

    # what the record says

    def epochs(self) -> Iterator[tuple[Snapshot, Decision]]:
        """Every epoch, in order."""
        for epoch in recorded(self.folder / "record"):
            yield load_snapshot(epoch.snapshot), load_decision(epoch.decision)

    def check_record(self) -> None:
        """Ensures that promises were carried over, kept or given up for a reason, and that jobs ran where it was decided."""
        decided: dict[str, set[frozenset[str]]] = {}
        promised: dict[str, tuple[int | None, int]] = {}
        for snapshot, decision in self.epochs():
            for work in snapshot.workloads:
                run, known = work.run, promised.get(work.id)
                if run is not None and known is not None and run.start_time == known[0]:
                    assert (run.protected_until or 0) >= known[1], f"the promise of {work.id} was forgotten"
                promised.pop(work.id, None)
                if run is not None and run.protected_until is not None:
                    promised[work.id] = run.start_time, run.protected_until
            for stop in decision.preemptions:
                until = promised.get(stop.workload, (None, 0))[1]
                excused = any(row.workload == stop.workload for row in decision.contract_broken)
                assert until <= decision.now or excused, f"{stop.workload} was stopped before {until}"
            for start in decision.starts:
                decided.setdefault(start.workload, set()).add(frozenset(start.placement))
        for path in sorted((self.folder / "out").iterdir()):
            for began in self.starts(path.name):
                assert began.nodes in decided.get(path.name, set()), f"{path.name} ran on {sorted(began.nodes)}: never decided"
