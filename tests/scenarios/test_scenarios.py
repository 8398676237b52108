"""Small clusters with a known right answer, and what holds for every decision on them."""

from __future__ import annotations

import copy
import json
import random
import warnings
from typing import Any

import pytest

import allocator
from allocator import transition
from tests.scenarios import shared
from tests.scenarios.play import Json, answered, command, play, played, solve, solve_by_command, timeless

pytestmark = pytest.mark.skipif(not shared.SCENARIOS, reason=shared.MISSING)

BY_COMMAND = ("S18", "S20", "S25-researchers")


def names() -> list[str]:
    """The names of all scenarios."""
    return list(shared.SCENARIOS)


def expectations(name: str, runs: tuple[Any, ...]) -> Any:
    findings = shared.build.Findings()
    shared.SCENARIOS[name].expect(runs, findings)
    return findings


@pytest.mark.parametrize("name", names())
def test_every_must_holds(name: str) -> None:
    findings = expectations(name, played(name))
    for point in findings.should_failed:
        warnings.warn(f"{name}: SHOULD fails: {point}", stacklevel=1)
    assert findings.must_failed == []
    assert findings.must_held > 0


@pytest.mark.parametrize("name", names())
def test_only_what_may_be_refused_is_refused(name: str) -> None:
    refused = {index for index, run in enumerate(played(name)) if run.decision is None}
    assert refused <= shared.SCENARIOS[name].may_refuse


@pytest.mark.parametrize("name", names())
def test_the_verifier_is_content(name: str) -> None:
    for run in answered(name):
        snapshot, decision = documents(run)
        verdict = allocator.verify(snapshot, decision)
        assert [str(violation) for violation in verdict.violations] == []
        assert verdict.score.total == decision.solver.objective


def documents(run: Any) -> tuple[allocator.Snapshot, allocator.Decision]:
    snapshot = allocator.decode_snapshot(json.dumps(run.snapshot).encode())
    return snapshot, allocator.decode_decision(json.dumps(run.decision).encode())


@pytest.mark.parametrize("name", names())
def test_solved_again_at_the_same_instant_nothing_moves(name: str) -> None:
    for run in answered(name):
        again = solve(shared.advance.apply(run.snapshot, run.decision, 0))
        assert again.quiet, moves(again)
        if not run.quiet:
            snapshot, decision = documents(run)
            by_ours = solve(json.loads(allocator.encode_snapshot(transition.apply(snapshot, decision))))
            assert by_ours.quiet, moves(by_ours)


def moves(run: Any) -> Json:
    return {key: run.decision[key] for key in ("starts", "preemptions", "renewals", "promotions")}


@pytest.mark.parametrize("name", names())
def test_neither_the_order_of_lists_nor_names_matter(name: str) -> None:
    for run in answered(name):
        shuffled = shuffle(run.snapshot)
        assert digest(shuffled) == digest(run.snapshot) == run.decision["snapshot"]
        renamed = solve(rename(shuffled)).decision
        assert timeless(renamed) | {"snapshot": None} == timeless(run.decision) | {"snapshot": None}


def digest(snapshot: Json) -> str:
    return allocator.snapshot_digest(allocator.decode_snapshot(json.dumps(snapshot).encode()))


def shuffle(snapshot: Json) -> Json:
    """The same snapshot with its lists in another order."""
    found, rng = copy.deepcopy(snapshot), random.Random(7)
    for rows in (found["cluster"]["nodes"], found["budgets"], found["usage"], found["workloads"], found["reservations"]):
        rng.shuffle(rows)
    return found


def rename(snapshot: Json) -> Json:
    """The same snapshot with other names for people; ids stay."""
    found = copy.deepcopy(snapshot)
    for vertex in found["budgets"]:
        vertex["name"] = f"formerly {vertex.get('name', vertex['id'])}"
    return found


@pytest.mark.parametrize("name", [name for name, one in shared.SCENARIOS.items() if not (one.eventful or one.independent)])
def test_nothing_starts_before_it_was_told(name: str) -> None:
    told: dict[str, int] = {}
    for run in played(name):
        early = {key: told[key] for key in run.starts if told.get(key, run.now) > run.now}
        assert early == {}
        for row in run.decision["waiting"]:
            assert not (row["never"] and row["not_before"] is not None)
            if row["not_before"] is not None:
                told[row["workload"]] = max(row["not_before"], told.get(row["workload"], 0))


@pytest.mark.parametrize("name", names())
def test_everything_that_waits_is_explained_once(name: str) -> None:
    for run in answered(name):
        waiting = {work["id"] for work in run.snapshot["workloads"]} - run.runs_after()
        rows = [row["workload"] for row in run.decision["waiting"]]
        assert sorted(rows) == sorted(waiting)
        assert all(row["detail"] for row in run.decision["waiting"])


@pytest.mark.parametrize("name", BY_COMMAND)
def test_the_command_line_answers_the_same(name: str) -> None:
    scenario = shared.SCENARIOS[name]
    runs = play(scenario, solve_by_command)
    assert expectations(name, runs).must_failed == []
    for ours, theirs in zip(runs, played(name), strict=True):
        assert ours.status == theirs.status
        if ours.decision is not None:
            assert timeless(ours.decision) == timeless(theirs.decision)
            assert "Traceback" not in ours.stderr


def test_the_commands_agree_with_each_other(tmp_path: Any) -> None:
    run = answered("S4")[0]
    snapshot, decision = tmp_path / "snapshot.json", tmp_path / "decision.json"
    snapshot.write_text(json.dumps(run.snapshot))
    decision.write_text(json.dumps(run.decision))
    assert command("verify", str(snapshot), str(decision)).returncode == 0
    after = command("apply", str(snapshot), str(decision), "--advance", "300")
    assert after.returncode == 0
    assert json.loads(after.stdout)["now"] == run.now + 300
    explained = command("explain", str(snapshot), str(decision), "E1")
    assert explained.returncode == 0
    assert b"A2" in explained.stdout, "E1 gave way to A2, and is told so"
