"""One trace by seed, played by our `fifo_backfill` and by the EASY backfill of AccaSim, side by side: jobs per second.

    python -m benchmarks.simulators --jobs 10000 --gpus 1024 --load 1.06

Both begin with a file and end with files: ours reads a trace and writes its tables, AccaSim reads the same jobs as a log in the
Standard Workload Format and writes its two. What is imported is not counted. Either runs in a process of its own, in turn, so
that the load of the machine falls on both. Without the package `accasim` only ours is measured.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from allocator.bench.machine import machine_facts
from allocator.bench.table import facts_line
from allocator.domain.trace import Job, Trace
from allocator.generate.organisation_trace import TraceParams, generate_trace
from allocator.replay import ReplayOptions, Simulator, import_pandas, make_policy, write_results
from allocator.replay.baselines.yard import limit_of
from allocator.wire import encode_trace, load_trace

DAY = 86_400
NODE = 8
"""GPUs of a node of the generated cluster, and cores of a node there."""

RUN_OUT = 14 * DAY
"""After the last submission, so that what runs and waits comes to its end as it does in AccaSim."""

OURS = 2
"""Rows of each side: all of it, and a part."""

ABSENT = "AccaSim is not installed: pip install accasim (into an environment of its own, it pins old packages), then again"

SAME = "the same jobs, submissions, run times, time limits and sizes; first come, first served with EASY backfill; no failures"
DIFFERS = (
    "AccaSim decides at every second with an event, takes a job for so many cores wherever they are free, and writes two "
    "files; ours decides every 15 s, keeps a task on one node and a gang in few racks, checks every placement, balances "
    "the books of every allocation hour by hour, and writes nine tables and a summary"
)


class Took(NamedTuple):
    """What a simulation took, in seconds."""

    name: str
    jobs: int
    cpu: float
    wall: float

    @property
    def rate(self) -> float:
        """Jobs per second of CPU time."""
        return self.jobs / max(self.cpu, 1e-9)


def make(jobs: int, gpus: int, load: float, days: int, seed: int) -> Trace:
    """The first jobs of a synthetic organisation: no sessions that idle, no chains, no failures.

    Raises
    ------
    SystemExit
        If so many days do not have so many jobs.
    """
    made = generate_trace(TraceParams(gpus=gpus, pools=1, days=days, seed=seed, load=load, failures=0.0))
    alone = sorted((job for job in made.jobs if job.after is None), key=lambda job: job.workload.submit_time)[:jobs]
    if len(alone) < jobs:
        sys.exit(f"{days} days have {len(alone)} jobs: ask for more --days, or fewer --jobs")
    end = alone[-1].workload.submit_time + RUN_OUT
    return replace(made, jobs=tuple(replace(job, idle=0) for job in alone), outages=(), maintenance=(), revisions=(), end=end)


def swf_lines(trace: Trace) -> list[str]:
    """The jobs in the Standard Workload Format, a processor for a GPU; fields that nobody reads are -1 or 1."""
    rows = (_swf_line(number, job, trace.start) for number, job in enumerate(trace.jobs, 1))
    return [f"; UnixStartTime: {trace.start}", *rows]


def _swf_line(number: int, job: Job, start: int) -> str:
    work = job.workload
    takes = job.work if job.fails_after is None else min(job.work, job.fails_after)
    limit = max(limit_of(work), takes)
    asked = (work.gpus, limit, 1024, 1, 1, 1, -1, 1, -1, -1, -1)
    fields = (number, work.submit_time - start, -1, takes, work.gpus, -1, 1024, *asked)
    return " ".join(map(str, fields))


def ours(folder: Path) -> list[Took]:
    """Our replay of `trace.json`: all of it, and without reading and writing."""
    import_pandas()
    spent = _stopwatch()
    trace = load_trace(folder / "trace.json")
    gc.freeze()  # as `allocator replay` does
    read = spent()
    simulator = Simulator(trace, make_policy("fifo_backfill"), ReplayOptions())
    simulator.run()
    played = spent()
    write_results(simulator, folder / "results")
    whole, jobs = spent(), sum(life.ended is not None for life in simulator.world.lives.values())
    alone = Took("of this, without files", jobs, played[0] - read[0], played[1] - read[1])
    return [Took("fifo_backfill", jobs, *whole), alone]


def _stopwatch() -> Callable[[], tuple[float, float]]:
    cpu, wall = time.process_time(), time.perf_counter()
    return lambda: (time.process_time() - cpu, time.perf_counter() - wall)


def in_child(module: str, folder: Path) -> list[Took]:
    """Run one side in a process of its own; its last line says what it took."""
    done = subprocess.run([sys.executable, "-m", module, "--play", str(folder)], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{module} failed with status {done.returncode}: {done.stderr.strip()[-2000:]}")
    return [Took(*row) for row in json.loads(done.stdout.strip().splitlines()[-1])]


def lines(rows: Sequence[Took]) -> list[str]:
    """The table, and the ratios where there are two sides to compare, each with its second row below the first."""
    head = f"{'':28}{'jobs':>8}{'CPU s':>9}{'wall s':>9}{'jobs/CPU s':>12}{'jobs/wall s':>13}"
    table = [
        f"{row.name:28}{row.jobs:8,}{row.cpu:9.2f}{row.wall:9.2f}{row.rate:12,.0f}{row.jobs / max(row.wall, 1e-9):13,.0f}"
        for row in rows
    ]
    ratio = [ABSENT]
    if len(rows) > OURS:
        whole, part = (rows[at].rate / rows[OURS + at].rate for at in range(OURS))
        ratio = [f"ratio of jobs per CPU second, ours to AccaSim: {whole:.2f}; of the second rows: {part:.2f}"]
    return [head, *table, *ratio, f"same: {SAME}", f"differs: {DIFFERS}"]


def least(rounds: Sequence[Sequence[Took]]) -> list[Took]:
    """Of each row the round that took the least CPU time: what else runs on the machine only adds to it."""
    return [min(row, key=lambda took: took.cpu) for row in zip(*rounds, strict=True)]


def measure(trace: Trace, repeat: int) -> list[Took]:
    """Ours, and AccaSim where it is installed, in turn."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "trace.json").write_bytes(encode_trace(trace))
        (folder / "log.swf").write_text("\n".join(swf_lines(trace)) + "\n", encoding="utf-8")
        nodes = len(trace.cluster.nodes)
        config = {"groups": {"node": {"core": NODE, "mem": 1_000_000}}, "resources": {"node": nodes}}
        (folder / "system.json").write_text(json.dumps(config), encoding="utf-8")
        sides = ["benchmarks.simulators", *(["benchmarks.accasim_easy"] if find_spec("accasim") else [])]
        return least([[row for side in sides for row in in_child(side, folder)] for _ in range(repeat)])


def main(args: Sequence[str] | None = None) -> None:
    """The command; leaves by SystemExit where something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--gpus", type=int, default=1_024)
    parser.add_argument("--load", type=float, default=1.06)
    parser.add_argument("--days", type=int, default=14, help="days from which the first jobs are taken")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=3, help="rounds, of which the least counts")
    parser.add_argument("--play", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args(args)
    if given.play:
        sys.stdout.write(json.dumps(ours(given.play)) + "\n")
        return
    trace = make(given.jobs, given.gpus, given.load, given.days, given.seed)
    title = f"{given.jobs:,} jobs on {given.gpus:,} GPUs, offered load {given.load}, seed {given.seed}; least of {given.repeat}"
    sys.stdout.write("\n".join([title, *lines(measure(trace, max(1, given.repeat))), facts_line(machine_facts())]) + "\n")


if __name__ == "__main__":
    main()
