"""Scenarios from beginning to end: what is written, what is kept, and who runs it."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from allocator.domain import SnapshotError
from allocator.replay import write_results
from allocator.replay.errors import MissingExtraError
from allocator.replay.summary import TIMING
from allocator.whatif import Base, Scenario, WhatIfError, cells, run_scenario
from allocator.whatif.cells import digest_of
from allocator.whatif.draws import bases
from allocator.whatif.folder import only_run, refuse_foreign
from allocator.whatif.scenario_doc import RunDoc
from tests.whatif.small import scenario, write_trace

pytest.importorskip("pyarrow")
pytest.importorskip("joblib")

MORE = {"name": "more", "title": "Two nodes more", "add": [{"like": "n1", "nodes": 2}]}


@dataclass(frozen=True)
class Played:
    """A scenario, its folder, and what was told on the way."""

    scenario: Scenario
    folder: Path
    found: dict[str, Any]
    told: list[tuple[int, int, int]]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """Two variants for two seeds, played by one process."""
    home = tmp_path_factory.mktemp("whatif")
    write_trace(home)
    question = scenario(home, MORE, seeds=[1, 2])
    told: list[tuple[int, int, int]] = []
    return Played(question, home / "out", run_scenario(question, home / "out", lambda *state: told.append(state)), told)


@pytest.fixture
def question(played: Played) -> Scenario:
    return played.scenario


def contents(folder: Path) -> dict[str, bytes]:
    """All files but those that depend on the machine."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != TIMING)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_a_scenario_leaves_a_folder_for_each_cell_and_one_comparison(played: Played) -> None:
    found, out = played.found, played.folder
    assert played.told == [(done, 4, 0) for done in range(1, 5)]
    assert found == json.loads((out / "whatif.json").read_text())
    assert [row["key"] for row in found["cells"]] == ["base-s1", "base-s2", "more-s1", "more-s2"]
    assert (found["name"], found["scenario"], found["base"], found["seeds"]) == ("small", "small", "base", [1, 2])
    assert found["variants"][1] == {"name": "more", "title": "Two nodes more", "edits": {"add": [{"like": "n1", "nodes": 2}]}}
    assert json.loads((out / "cells" / "more-s1" / "summary.json").read_text())["gpus"] == {"h100": 48}
    occupied = {row["variant"]: row for row in found["comparison"] if row["metric"] == "occupancy"}
    assert occupied["base"]["difference"] is None
    assert occupied["more"]["difference_low"] <= occupied["more"]["difference"] <= occupied["more"]["difference_high"] < 0
    lines = (out / "comparison.csv").read_text().splitlines()
    assert lines[0].startswith("metric,definition,unit,better,variant,allocation,value,low,high,difference")
    assert len(lines) == 1 + len(found["comparison"])
    assert {row["allocation"] for row in found["projects"]} == {"a", "b"}
    pools = {(row["metric"], row.get("allocation"), row["variant"]): row for row in found["pools"] if row["pool"] == "h100"}
    assert pools["occupancy", None, "more"]["value"] == pytest.approx(occupied["more"]["value"])  # it is the only pool
    owed = {row["allocation"]: row for row in found["projects"] if (row["metric"], row["variant"]) == ("delivered", "base")}
    for name, row in owed.items():
        assert 0 < row["value"] <= 1
        assert pools["delivered", name, "base"]["value"] == pytest.approx(row["value"])
    shares = [row["value"] for row in owed.values()]
    assert min(shares) <= pools["delivered", None, "base"]["value"] <= max(shares)
    assert len((out / "pools.csv").read_text().splitlines()) == 1 + len(found["pools"])
    assert any(sentence.startswith("more: the assigned part of the cluster falls") for sentence in found["sentences"])


def test_a_run_that_was_killed_goes_on_to_the_same_bytes(
    played: Played, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, calls = write_results, 0

    def killed(*args: object) -> object:
        nonlocal calls
        calls += 1
        if calls == 3:
            (tmp_path / "cells" / ".more-s1.7.part").mkdir()
            raise KeyboardInterrupt
        return write(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(cells, "write_results", killed)
    with pytest.raises(KeyboardInterrupt):
        run_scenario(played.scenario, tmp_path)
    assert {path.name for path in (tmp_path / "cells").iterdir() if path.name[0] != "."} == {"base-s1", "base-s2"}
    kept: list[int] = []
    run_scenario(played.scenario, tmp_path, lambda done, total, count: kept.append(count))
    assert kept[-1] == 2
    assert contents(tmp_path) == contents(played.folder)


def test_what_a_changed_scenario_asks_is_played_anew(played: Played, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(played.folder, out)
    write_trace(tmp_path)
    other = scenario(tmp_path, {**MORE, "add": [{"like": "n1", "nodes": 1}]}, seeds=[1, 2])
    kept: list[int] = []
    run_scenario(other, out, lambda done, total, count: kept.append(count))
    assert kept[-1] == 2
    assert json.loads((out / "cells" / "more-s1" / "summary.json").read_text())["gpus"] == {"h100": 40}
    assert not list((out / "cells").glob(".*.part"))
    (_, trace), _ = bases(other)
    assert (
        len({digest_of(one, settings) for one in (trace, replace(trace, end=trace.end - 1)) for settings in ({}, {"tick": 1})})
        == 4
    )


def test_a_damaged_cell_is_named_and_played_anew(played: Played, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    out = tmp_path / "out"
    shutil.copytree(played.folder, out)
    (out / "cells" / "base-s1" / "cell.json").write_text("{garbage")
    (out / "cells" / "more-s2" / "cell.json").write_bytes(b"\xff[]")
    (out / "cells" / "more-s1" / "cell.json").write_text("[]")
    kept: list[int] = []
    run_scenario(played.scenario, out, lambda done, total, count: kept.append(count))
    assert kept[-1] == 1
    told = [record.getMessage() for record in caplog.records if "damaged" in record.getMessage()]
    assert [each.split("/cells/")[1].split("/")[0] for each in told] == ["base-s1", "more-s1", "more-s2"]
    assert all(each.endswith("the cell is played anew") for each in told)
    assert contents(out) == contents(played.folder)


def test_one_run_at_a_time_in_a_folder(played: Played, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with only_run(out), pytest.raises(WhatIfError, match=rf"another run \(process {os.getpid()} on .*\): wait until it ends"):
        run_scenario(played.scenario, out)
    assert [path.name for path in out.iterdir()] == ["whatif.lock"]
    (out / "whatif.lock").write_text("process 1 on a machine that was switched off\n")
    with only_run(out):
        assert "process 1 " not in (out / "whatif.lock").read_text()
    assert (out / "whatif.lock").read_text() == ""


def test_a_folder_without_locks_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with (
        pytest.raises(WhatIfError, match=r"cannot be locked \(No locks available\): give a folder on a file system"),
        only_run(tmp_path),
    ):
        pass
    (tmp_path / "file").write_text("")
    with pytest.raises(WhatIfError, match="cannot be written"), only_run(tmp_path / "file"):
        pass


def test_a_folder_of_something_else_is_left_alone(played: Played, tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt", "c.txt", "d.txt"):
        (tmp_path / name).write_text("mine")
    with pytest.raises(WhatIfError, match=r"is no folder of a what-if, for it holds a.txt, b.txt, c.txt and 1 more: give"):
        run_scenario(played.scenario, tmp_path)
    assert len(list(tmp_path.iterdir())) == 4
    with pytest.raises(WhatIfError, match="cannot be read"):
        refuse_foreign(tmp_path / "a.txt")


def test_two_processes_write_what_one_does(played: Played, tmp_path: Path) -> None:
    run_scenario(replace(played.scenario, run=RunDoc(jobs=2)), tmp_path)
    assert contents(tmp_path) == contents(played.folder)


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "package"), [("dask", "distributed"), ("ray", "ray")])
def test_a_cluster_writes_what_one_process_does(backend: str, package: str, played: Played, tmp_path: Path) -> None:
    pytest.importorskip(package)
    run = msgspec.convert({"jobs": 2, "backend": backend}, RunDoc)
    run_scenario(replace(played.scenario, run=run), tmp_path)
    assert contents(tmp_path) == contents(played.folder)


def test_what_should_run_it_has_to_be_there(question: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(WhatIfError, match="no address"):
        run_scenario(replace(question, run=RunDoc(address="tcp://x")), tmp_path / "out")
    with pytest.raises(WhatIfError, match="no cell at a time"):
        run_scenario(replace(question, run=RunDoc(jobs=0)), tmp_path / "out")
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingExtraError, match=r"gpu-epoch-allocator\[dask\]"):
        run_scenario(replace(question, run=RunDoc(backend="dask")), tmp_path / "out")


def test_a_cell_that_breaks_off_is_named(question: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise WhatIfError("the disk is full")

    monkeypatch.setattr(cells, "write_results", broken)
    with pytest.raises(WhatIfError, match="base-s1: the disk is full"):
        run_scenario(question, tmp_path / "out")
    assert list((tmp_path / "out" / "cells").iterdir()) == []


def test_everything_that_does_not_fit_is_told_before_anything_is_played(question: Scenario, tmp_path: Path) -> None:
    write_trace(tmp_path)
    wrong = scenario(
        tmp_path,
        {"name": "a", "remove": [{"node": "n9"}]},
        {"name": "b", "replay": {"policy": "best"}},
        {"name": "c", "replay": {"drift": 60}},
    )
    with pytest.raises(SnapshotError) as caught:
        run_scenario(wrong, tmp_path / "out")
    told = [str(issue) for issue in caught.value.issues]
    assert [each.split(":")[0] for each in told] == ["variant a", "variant b", "variant c"]
    assert not (tmp_path / "out").exists()
    with pytest.raises(SnapshotError, match="is no file"):
        run_scenario(replace(question, base=Base(trace=tmp_path / "absent.json")), tmp_path / "out")


def test_seeds_draw_what_the_scenario_says(question: Scenario, tmp_path: Path) -> None:
    jobs = {
        draw: [trace.jobs for _, trace in bases(replace(question, draw=draw, jitter=60))] for draw in ("days", "jitter")
    }  # fmt: skip
    as_it_is = [trace.jobs for _, trace in bases(replace(question, seeds=()))]
    for one, other in jobs.values():
        assert one != other
        assert as_it_is[0] not in (one, other)
    made = scenario(tmp_path, MORE, base={"generate": {"gpus": 64, "pools": 1, "days": "1", "load": 0.5}}, seeds=[3, 4])
    names = [{job.workload.allocation for job in trace.jobs} for _, trace in bases(made)]
    assert names[0] != names[1]


def test_until_stops_every_cell_sooner(question: Scenario, tmp_path: Path) -> None:
    short = replace(question, seeds=(), replay=msgspec.structs.replace(question.replay, until=86_400))
    found = run_scenario(short, tmp_path / "out")
    summary = json.loads((tmp_path / "out" / "cells" / "base-s0" / "summary.json").read_text())
    assert summary["end"] - summary["start"] == 86_400
    assert found["sentences"] == ["more: no difference to base is told: it takes three days or three seeds for intervals."]
