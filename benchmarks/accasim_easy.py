"""AccaSim's EASY backfill on a log, in a process of its own: started by `benchmarks.simulators`.

AccaSim is of a time when the collections had other names and numpy had aliases of the builtin types. They are given back here,
to this process alone.
"""

from __future__ import annotations

import collections
import collections.abc
import json
import os
import sys
import time
from importlib import import_module, metadata
from multiprocessing import active_children
from pathlib import Path

import numpy as np

ABSTRACT = ("Iterable", "Mapping", "MutableMapping", "Sequence", "Callable", "Hashable", "Set")
ALIASES = (int, float, bool, object)


def give_back_old_names() -> None:
    """What AccaSim expects to find in `collections` and numpy."""
    for name in ABSTRACT:
        setattr(collections, name, getattr(collections.abc, name))
    for kind in ALIASES:
        if kind.__name__ not in np.__dict__:
            setattr(np, kind.__name__, kind)


def cpu_seconds() -> float:
    """CPU time of this process and of its children that have ended."""
    return sum(os.times()[:4])


def play(folder: Path) -> list[tuple[str, int, float, float]]:
    """Name, jobs, and seconds of CPU and wall clock, with reading the log and writing the default outputs.

    AccaSim prepares what it writes in processes of its own. They count in the first row, and not in the second.
    """
    give_back_old_names()
    simulator_class = import_module("accasim.base.simulator_class")
    scheduler_class = import_module("accasim.base.scheduler_class")
    allocator_class = import_module("accasim.base.allocator_class")
    os.chdir(folder)
    Path("accasim").mkdir(exist_ok=True)
    dispatcher = scheduler_class.EASYBackfilling(allocator_class.FirstFit())
    cpu, own, wall = cpu_seconds(), time.process_time(), time.perf_counter()
    simulator = simulator_class.Simulator(
        "log.swf", "system.json", dispatcher, RESULTS_FOLDER_NAME="accasim", LOG_LEVEL="ERROR"
    )
    simulator.start_simulation()
    for child in active_children():
        child.join()
    cpu, own, wall = cpu_seconds() - cpu, time.process_time() - own, time.perf_counter() - wall
    jobs = sum(1 for line in Path("accasim/sched-log.swf").read_text(encoding="utf-8").splitlines() if line.strip())
    name = f"AccaSim {metadata.version('accasim')}, EASY"
    return [(name, jobs, cpu, wall), ("of this, its main process", jobs, own, wall)]


if __name__ == "__main__":
    sys.stdout.write("\n" + json.dumps(play(Path(sys.argv[2]))) + "\n")
