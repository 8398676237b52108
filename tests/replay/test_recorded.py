"""What was recorded is replayed: the same policy does the same again, another one something else, and the books balance."""

from __future__ import annotations

import filecmp
import json
from pathlib import Path

import pytest

from allocator.generate.recorded import trace_from_record
from allocator.record import recorded
from allocator.replay import ReplayOptions, Simulator, make_policy
from allocator.replay.tables import TABLES
from tests.cli.conftest import Invoke, invoke
from tests.generate.production import TICK, Production
from tests.generate.test_recorded import some_work

__all__ = ["invoke"]

pytest.importorskip("pyarrow")


@pytest.mark.parametrize("seed", [4, 5])
def test_the_policy_of_production_does_the_same_again(tmp_path: Path, seed: int) -> None:
    production = Production(tmp_path, some_work(seed))
    production.run(75)
    assert all(truth.done == truth.work for truth in production.truths.values()), "what has not ended is estimated"
    policy = make_policy("budgets_greedy", drift=TICK)
    simulator = Simulator(trace_from_record(tmp_path), policy, ReplayOptions(tick=TICK, drift=TICK))
    simulator.run()
    began = sorted((row.workload, decision.now) for decision in production.decisions for row in decision.starts)
    assert sorted((row.job, row.start) for row in simulator.world.runs) == began
    stops = sorted((row.workload, decision.now) for decision in production.decisions for row in decision.preemptions)
    assert stops
    assert sorted((row.job, row.end) for row in simulator.world.runs if row.ended_by != "completed") == stops


@pytest.fixture
def record(tmp_path: Path) -> Path:
    folder = tmp_path / "epochs"
    Production(folder, some_work(2)).run(40, before=5)
    return folder


def test_the_command_plays_a_folder_and_says_what_is_estimated(invoke: Invoke, record: Path, tmp_path: Path) -> None:
    outs = [tmp_path / "first", tmp_path / "second"]
    first, second = (invoke("replay", record, "--policy", "fifo_backfill", "--out", out) for out in outs)
    assert (first.status, first.text) == (0, second.text)
    assert first.text.startswith("fifo_backfill on epochs: 0.0 days, 16 GPUs")
    names = [*(f"{table}.{kind}" for table in TABLES for kind in ("csv", "parquet")), "summary.json"]
    assert filecmp.cmpfiles(outs[0], outs[1], names, shallow=False)[0] == names
    notes = json.loads((outs[0] / "summary.json").read_text())["notes"]
    assert first.err.splitlines() == [f"note: {note}" for note in notes]
    assert any("jobs had not ended: the rest of their work is estimated" in note for note in notes)


def test_the_command_begins_at_a_file(invoke: Invoke, record: Path, tmp_path: Path) -> None:
    epoch = list(recorded(record))[10]
    result = invoke("replay", epoch.snapshot, "--out", tmp_path / "out", "--json", "--until", "10m")
    assert (result.json["start"], result.json["end"]) == (epoch.now, epoch.now + 600)


def test_a_record_becomes_a_trace_for_other_commands(invoke: Invoke, record: Path, tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    made = invoke("generate", "trace", "--from", record, "--out", file)
    assert (made.status, "note: " in made.err) == (0, True)
    played = [invoke("replay", what, "--out", tmp_path / "out", "--json") for what in (record, file)]
    assert played[0].json == played[1].json
    assert played[1].err == ""


def test_a_folder_that_is_no_record(invoke: Invoke, tmp_path: Path) -> None:
    result = invoke("replay", tmp_path, "--out", tmp_path / "out")
    assert (result.status, result.out) == (2, b"")
    assert "has 0 recorded epochs; a replay needs two or more" in result.err
