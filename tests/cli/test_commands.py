"""What each command prints."""

from __future__ import annotations

import gzip
import json
import math
import time
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from tests.cli.conftest import Invoke, write
from tests.wire.documents import NOW, document, job

# --- solve ---------------------------------------------------------------------------------------------------------------


def test_solve_prints_the_decision_and_nothing_else(invoke: Invoke, snapshot: Path) -> None:
    result = invoke("solve", snapshot, "--engine", "greedy")
    assert result.status == 0
    assert result.json["version"] == 1
    assert [row["workload"] for row in result.json["starts"]] == ["w"]
    assert [row["reason"] for row in result.json["waiting"]] == ["invalid_request"]
    assert result.out.count(b"\n") == 1


def test_solve_warns_of_what_it_rejects_though_the_rest_is_decided(invoke: Invoke, tmp_path: Path) -> None:
    works = [job("w"), *(job(f"bad{i}", tasks=-1) for i in range(7))]
    result = invoke("solve", write(tmp_path / "snapshot.json", document(*works)), "--engine", "greedy")
    lines = result.err.splitlines()
    assert [line.partition(": ")[0] for line in lines] == ["warning"] * 6
    assert lines[0].startswith("warning: rejected: $.workloads[?@.id=='bad0'].tasks: -1 is not valid here; give ")
    assert lines[5] == "warning: rejected: 2 more; the `waiting` rows of the decision name them"


def test_solve_is_silent_where_all_is_well(invoke: Invoke, tmp_path: Path) -> None:
    assert invoke("solve", write(tmp_path / "snapshot.json", document(job("w"))), "--engine", "greedy").err == ""


def test_solve_tells_how_long_the_whole_call_took_and_not_the_sum_of_that_and_its_parts(invoke: Invoke, snapshot: Path) -> None:
    begun = time.monotonic()
    timing = invoke("solve", snapshot, "--engine", "greedy").json["timing"]
    assert math.fsum(timing["steps"].values()) <= timing["total_seconds"] <= time.monotonic() - begun
    assert not {name for name in timing["steps"] if name.startswith("total")}


def test_solve_writes_a_file(invoke: Invoke, snapshot: Path, tmp_path: Path) -> None:
    plain, packed = tmp_path / "d.json", tmp_path / "d.json.gz"
    for out in (plain, packed):
        result = invoke("solve", snapshot, "--engine", "greedy", "--out", out)
        assert (result.status, result.out) == (0, b"")
    written, unpacked = json.loads(plain.read_bytes()), json.loads(gzip.decompress(packed.read_bytes()))
    assert {key: value for key, value in written.items() if key != "timing"} == {
        key: value for key, value in unpacked.items() if key != "timing"
    }
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".gz", ".json", ".json"]


def test_solve_summary_goes_to_standard_error(invoke: Invoke, snapshot: Path) -> None:
    result = invoke("solve", snapshot, "--engine", "greedy", "-v")
    assert result.json["now"] == NOW
    assert "starts        1 (1 charged, 0 free of charge): w" in result.err
    assert "waiting       1: 1 invalid_request" in result.err


def test_solve_reads_standard_input_and_gzip(invoke: Invoke, snapshot: Path) -> None:
    plain = invoke("solve", snapshot, "--engine", "greedy").json
    piped = invoke("solve", "-", "--engine", "greedy", stdin=gzip.compress(snapshot.read_bytes())).json
    assert {**piped, "timing": None} == {**plain, "timing": None}


def test_solve_without_limit_options_uses_the_portfolio(invoke: Invoke, snapshot: Path) -> None:
    result = invoke("solve", snapshot)
    assert result.status == 0
    assert result.json["solver"]["seed"] == 0


# --- apply, verify -------------------------------------------------------------------------------------------------------


def test_apply_gives_the_next_snapshot(invoke: Invoke, snapshot: Path, decision: Path) -> None:
    result = invoke("apply", snapshot, decision, "--advance", "60")
    assert (result.status, result.err) == (0, "")
    after = result.json
    assert after["now"] == NOW + 60
    works = {work["id"]: work for work in after["workloads"]}
    assert set(works) == {"r", "w", "bad"}
    assert works["w"]["run"]["start_time"] == NOW
    assert works["bad"]["tasks"] == -1
    assert invoke("schema", "snapshot").status == 0


def test_apply_again_warns_and_changes_nothing(invoke: Invoke, snapshot: Path, decision: Path, tmp_path: Path) -> None:
    once = tmp_path / "once.json"
    assert invoke("apply", snapshot, decision, "--out", once).status == 0
    twice = invoke("apply", once, decision)
    assert twice.status == 0
    assert twice.err.startswith("warning: the decision was made for sha256:")
    assert twice.out == once.read_bytes()


def test_verify_recomputes_the_score(invoke: Invoke, snapshot: Path, decision: Path) -> None:
    result = invoke("verify", snapshot, decision)
    assert result.status == 0
    assert result.text.startswith("all rules are kept\nscore")
    assert "fragmentation" in result.text
    found = invoke("verify", snapshot, decision, "--json").json
    assert found["ok"] is True
    assert found["violations"] == []
    assert found["score"]["total"] == json.loads(decision.read_bytes())["solver"]["objective"]
    assert found["score"]["total"] == pytest.approx(sum(found["score"]["terms"].values()))


def test_verify_names_every_broken_rule(invoke: Invoke, snapshot: Path, decision: Path) -> None:
    claimed = json.loads(decision.read_bytes())
    claimed["starts"][0]["placement"] = {"n1": 1}
    write(decision, claimed)
    result = invoke("verify", snapshot, decision)
    assert result.status == 1
    assert "capacity" in result.text
    assert "all rules are kept" not in result.text
    found = invoke("verify", snapshot, decision, "--json")
    assert found.status == 1
    assert found.json["ok"] is False
    assert "capacity" in {item["rule"] for item in found.json["violations"]}


# --- explain, budgets ----------------------------------------------------------------------------------------------------


def test_explain_the_epoch_a_workload_and_an_allocation(invoke: Invoke, snapshot: Path, decision: Path) -> None:
    epoch = invoke("explain", snapshot, decision)
    assert epoch.status == 0
    assert "invalid_request" in epoch.text
    assert "w starts" in invoke("explain", snapshot, decision, "w").text
    assert "tasks: -1 is not valid here" in " ".join(invoke("explain", snapshot, decision, "bad").text.split())
    assert "eval" in invoke("explain", snapshot, decision, "--allocation", "eval").text
    for args in ((), ("w",), ("--allocation", "eval")):
        assert invoke("explain", snapshot, decision, *args, "--json").json["now"] == NOW


@pytest.mark.parametrize("args", [("x",), ("--allocation", "x")])
def test_explain_what_does_not_exist(invoke: Invoke, snapshot: Path, decision: Path, args: tuple[str, ...]) -> None:
    result = invoke("explain", snapshot, decision, *args)
    assert (result.status, result.out) == (2, b"")
    assert "there is no" in result.err


def test_explain_needs_the_snapshot_of_the_decision(invoke: Invoke, snapshot: Path, decision: Path) -> None:
    value = json.loads(snapshot.read_bytes())
    write(snapshot, value | {"now": NOW + 1})
    result = invoke("explain", snapshot, decision)
    assert (result.status, result.out) == (2, b"")
    assert "the decision was made for sha256:" in result.err


def test_budgets(invoke: Invoke, snapshot: Path) -> None:
    result = invoke("budgets", snapshot)
    assert result.status == 0
    assert "pretrain" in result.text
    rows = invoke("budgets", snapshot, "--json").json["rows"]
    assert {row["id"] for row in rows} == {"base", "pretrain", "eval"}


def test_budgets_try(invoke: Invoke, snapshot: Path, tmp_path: Path) -> None:
    value = {"author": "ana", "reason": "more evaluation", "changes": [{"id": "eval", "share": 3}]}
    changes = write(tmp_path / "changes.json", value)
    result = invoke("budgets", snapshot, "--try", changes)
    assert result.status == 0
    assert "eval" in result.text
    assert invoke("budgets", snapshot, "--try", "-", "--json", stdin=changes.read_bytes()).json["author"] == "ana"
    write(changes, value | {"changes": [{"id": "evla", "share": 3}]})
    wrong = invoke("budgets", snapshot, "--try", changes)
    assert (wrong.status, wrong.out) == (2, b"")
    assert 'there is no allocation "evla"' in wrong.err


# --- schema, help --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("document", ["snapshot", "decision"])
def test_schema(invoke: Invoke, document: str) -> None:
    result = invoke("schema", document)
    assert result.status == 0
    Draft202012Validator.check_schema(result.json)


def test_the_schemas_fit_what_commands_read_and_write(invoke: Invoke, snapshot: Path, decision: Path) -> None:
    Draft202012Validator(invoke("schema", "decision").json).validate(json.loads(decision.read_bytes()))
    after = invoke("apply", snapshot, decision).json
    after["workloads"] = [work for work in after["workloads"] if work["id"] != "bad"]
    Draft202012Validator(invoke("schema", "snapshot").json).validate(after)


def test_help_and_version(invoke: Invoke) -> None:
    overview = invoke("--help")
    assert overview.status == 0
    for command in ("solve", "apply", "verify", "explain", "budgets", "schema", "generate"):
        assert f"\n  {command} " in overview.text
        text = invoke(command, "-h").text
        assert "Usage: allocator " in text
        assert "completion" not in text
    assert invoke("--version").text.startswith("allocator ")
