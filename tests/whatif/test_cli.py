"""The commands `whatif`, and `budgets --try` on a trace."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.builders import budget, snapshot
from tests.cli.conftest import Invoke, invoke
from tests.whatif.small import write_trace

__all__ = ["invoke"]

pytest.importorskip("pyarrow")
pytest.importorskip("joblib")

QUESTION = """
title = "What would two nodes more change?"
[base]
trace = "small.json"
[replay]
tick = "2h"
policy = "fifo_backfill"
[run]
jobs = 1
[[variants]]
name = "more"
title = "Two nodes more"
add = [{ like = "n1", nodes = 2 }]
"""

CHANGE = {"author": "eve", "reason": "more for b", "changes": [{"id": "b", "share": 120}]}


@pytest.fixture
def question(tmp_path: Path) -> Path:
    write_trace(tmp_path)
    file = tmp_path / "question.toml"
    file.write_text(QUESTION)
    return file


def test_the_answer_is_sentences_or_json(invoke: Invoke, question: Path, tmp_path: Path) -> None:
    result = invoke("whatif", question, "--out", tmp_path / "out")
    assert (result.status, result.err) == (0, "")
    lines = result.text.splitlines()
    assert lines[0] == "What would two nodes more change?: 2 variants, 1 seed, compared with base"
    assert "more  Two nodes more" in lines
    assert any(line.startswith("more: ") for line in lines)
    again = invoke("whatif", question, "--out", tmp_path / "out", "--json", "--jobs", 1)
    assert again.json == json.loads((tmp_path / "out" / "whatif.json").read_text())


def test_wrong_use_and_wrong_files_end_with_2(invoke: Invoke, question: Path, tmp_path: Path) -> None:
    def err(*args: object) -> str:
        result = invoke("whatif", *args)
        assert (result.status, result.out) == (2, b"")
        return result.err

    assert "give local, dask or ray" in err(question, "--out", tmp_path / "out", "--backend", "slurm")
    assert "no address" in err(question, "--out", tmp_path / "out", "--address", "tcp://x")
    assert "is no folder" in err(question, "--out", question)
    question.write_text(QUESTION.replace("n1", "n9"))
    assert f"error: {question}: variant more: add[0].like: there is no node 'n9'" in err(question, "--out", tmp_path / "out")
    assert "cannot be read" in err(tmp_path / "absent.toml", "--out", tmp_path / "out")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("")
    assert "is no folder of a what-if, for it holds thesis.tex" in err(question, "--out", tmp_path / "mine")
    (tmp_path / "small.json").write_text('{"jobs": [}')
    told = err(question, "--out", tmp_path / "out")
    assert told.startswith(f"error: {question}: {tmp_path / 'small.json'}: $")


def test_a_change_of_budgets_is_tried_on_a_trace(invoke: Invoke, tmp_path: Path) -> None:
    trace, changes = write_trace(tmp_path), tmp_path / "changes.json"
    changes.write_text(json.dumps(CHANGE))
    result = invoke("budgets", trace, "--try", changes, "--tick", 14400, "--out", tmp_path / "out")
    assert (result.status, result.err) == (0, "")
    lines = result.text.splitlines()
    assert lines[0] == "eve: more for b"
    assert {line.split()[0] for line in lines[3:5]} == {"a", "b"}
    assert (tmp_path / "out" / "cells" / "after-s0" / "summary.json").is_file()
    kept = invoke("budgets", trace, "--try", changes, "--tick", 14400, "--out", tmp_path / "out", "--json")
    assert kept.json["variants"][1]["edits"] == {"budgets": [{"file": str(changes)}]}
    assert "takes a change to try" in invoke("budgets", trace).err
    changes.write_text(json.dumps(CHANGE | {"changes": [{"id": "z", "share": 1}]}))
    assert "there is no allocation" in invoke("budgets", trace, "--try", changes).err


def test_a_budget_file_is_tried_on_a_snapshot(invoke: Invoke, tmp_path: Path) -> None:
    from allocator.wire import encode_snapshot
    from tests.builders import NOW, nodes

    path, file = tmp_path / "snapshot.json", tmp_path / "budgets.json"
    path.write_bytes(encode_snapshot(snapshot(nodes(2), [budget("a", 60), budget("b", 40)], [])))
    tree = [{"id": "a", "parent": None, "share": 1}, {"id": "b", "parent": None, "share": 1}]
    file.write_text(json.dumps({"version": 1, "budgets": tree, "change_sets": []}))
    alone = invoke("budgets", path, "--try", file, "--tick", 60, "--out", tmp_path / "out")
    assert (alone.status, alone.out) == (2, b"")
    assert "nothing is replayed: leave --out and --tick out, or give a trace" in alone.err
    assert not (tmp_path / "out").exists()
    assert "leave --tick out" in invoke("budgets", path, "--tick", 15).err
    first = invoke("budgets", path, "--try", file)
    assert "the tree of the first day" in first.text
    assert "50.00 %" in first.text
    sets = [{**CHANGE, "effective": NOW - 5}, {**CHANGE, "reason": "much more for b", "effective": NOW + 5}]
    file.write_text(json.dumps({"version": 1, "budgets": tree, "change_sets": sets}))
    second = invoke("budgets", path, "--try", file)
    assert "eve: more for b" in second.text
    assert "99.17 %" in second.text
