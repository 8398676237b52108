"""Plays scenarios: builds each epoch from the runs before it, solves it, and keeps what was answered."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import allocator
from tests.scenarios import shared
from tests.uncounted import uncounted

Json = dict[str, Any]
Solver = Callable[[Json], Any]

LIMIT = 60.0
"""Seconds for one call. Far more than these tiny clusters need, so that a busy machine changes no answer."""


def solve(snapshot: Json) -> Any:
    """One call of the library, as a run of the scenarios."""
    started = time.perf_counter()
    try:
        found = allocator.decode_snapshot(json.dumps(snapshot).encode())
    except allocator.SnapshotError as error:
        return shared.build.Run(snapshot, None, 2, time.perf_counter() - started, str(error))
    decision = json.loads(allocator.encode_decision(allocator.allocate(found, time_limit=LIMIT)))
    return shared.build.Run(snapshot, decision, 0, time.perf_counter() - started)


def command(*args: str, given: Json | None = None) -> subprocess.CompletedProcess[bytes]:
    """One call of the command line, with a document on standard input."""
    data = None if given is None else json.dumps(given).encode()
    return subprocess.run(
        [sys.executable, "-m", "allocator", *args],
        input=data,
        capture_output=True,
        check=False,
        cwd=shared.ROOT,
        env=uncounted(),
    )


def solve_by_command(snapshot: Json) -> Any:
    """The same through `allocator solve`."""
    started = time.perf_counter()
    done = command("solve", "-", "--time-limit", str(LIMIT), given=snapshot)
    decision = json.loads(done.stdout) if done.returncode == 0 else None
    assert decision is not None or done.stdout == b"", "nothing on standard output but a decision"
    return shared.build.Run(snapshot, decision, done.returncode, time.perf_counter() - started, done.stderr.decode())


def play(scenario: Any, solver: Solver) -> tuple[Any, ...]:
    """All epochs of a scenario, one after another."""
    runs: list[Any] = []
    for epoch in scenario.epochs:
        runs.append(solver(epoch(runs)))
    return tuple(runs)


@cache
def played(name: str) -> tuple[Any, ...]:
    """The runs of a scenario through the library; solved once for all tests."""
    return play(shared.SCENARIOS[name], solve)


def answered(name: str) -> list[Any]:
    """The runs that were not refused."""
    return [run for run in played(name) if run.decision is not None]


def timeless(decision: Json) -> Json:
    """What has to be the same whenever the same snapshot is solved."""
    return {key: value for key, value in decision.items() if key != "timing"}
