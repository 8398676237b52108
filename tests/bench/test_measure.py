"""Cases are run, timed and checked."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from allocator.bench import Case, Catalogue, Run, register, run_cases
from allocator.bench.cpu import cpu_seconds
from allocator.bench.engines import engine_names, solver_of
from allocator.bench.machine import machine_facts
from allocator.bench.runs import STEPS
from allocator.domain import Decision, Snapshot, SnapshotError
from allocator.engine import ENGINES, allocate

BUSY = """
import time
end = time.process_time() + 0.5
while time.process_time() < end:
    pass
print("done", flush=True)
input()
"""

INSTANCES = Path(__file__).resolve().parents[2] / "instances"


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    return Catalogue.open(INSTANCES).cases(["tiny/give-way", "tiny/whole-node"], engines=["portfolio", "greedy"])


def test_every_case_is_run_once_and_timed_step_by_step(cases: list[Case]) -> None:
    seen: list[Run] = []
    runs = run_cases([*cases, *cases], report=seen.append)
    assert runs == seen
    assert sorted((run.case.instance.name, run.case.engine) for run in runs) == [
        (name, engine) for name in ("tiny/give-way", "tiny/whole-node") for engine in ("greedy", "portfolio")
    ]
    for run in runs:
        assert run.violations == ()
        assert run.digest.startswith("sha256:")
        assert set(run.steps) <= set(STEPS)
        assert {"decode", "entitle", "compile", "greedy", "verify", "explain", "encode"} <= set(run.steps)
        assert min(run.steps.values()) >= 0
        assert max(run.steps.values()) <= run.seconds
        assert run.gap_to(run.case.instance.lower_bound) == 0
    exact = [run for run in runs if run.case.engine == "portfolio"]
    assert all(run.status == "optimal" for run in exact)
    assert (exact[0].facts.gpus, exact[0].facts.running, exact[0].facts.waiting, exact[0].facts.leaves) == (8, 2, 1, 2)


def test_without_refinement_building_is_part_of_solving() -> None:
    cases = Catalogue.open(INSTANCES).cases(["mixed-256"], engines=["portfolio"])[:1]
    (apart,), (together,) = run_cases(cases), run_cases(cases, refine=False)
    assert min(apart.steps["build"], apart.steps["solve"]) > 0
    assert "build" not in together.steps
    assert together.steps["solve"] > 0


def test_what_an_engine_claims_is_not_believed(cases: list[Case]) -> None:
    def liar(snapshot: Snapshot, budget: float, seed: int) -> Decision:
        honest = allocate(snapshot, time_limit=budget, engine="greedy", seed=seed)
        return replace(honest, solver=replace(honest.solver, objective=0), starts=())

    register("liar", liar)
    (run,) = run_cases([replace(cases[0], engine="liar")])
    assert "score" in run.violations
    assert run.objective > 0


def test_engines_by_name() -> None:
    assert set(engine_names()) >= set(ENGINES)
    with pytest.raises(SnapshotError, match="no engine is called 'nought'"):
        solver_of("nought")
    with pytest.raises(ValueError, match="of the product"):
        register("greedy", solver_of("greedy"))


def test_cpu_time_of_living_children_counts() -> None:
    before = cpu_seconds()
    with subprocess.Popen([sys.executable, "-c", BUSY], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"done\n"
        living = cpu_seconds() - before
        child.communicate(b"\n")
    ended = cpu_seconds() - before
    assert ended >= 0.5
    if Path("/proc/self/task").exists():
        assert living >= 0.4


def test_cpu_time_grows() -> None:
    before, end = cpu_seconds(), time.process_time() + 0.05
    while time.process_time() < end:
        pass
    assert cpu_seconds() > before


def test_facts_of_the_machine() -> None:
    facts = machine_facts()
    assert facts["ortools"].startswith("9.")
    assert facts["cpu"]
    assert int(facts["cpus"]) > 0
