"""Scenario files: what is read, and everything that is wrong with them at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from allocator.domain import SnapshotError
from allocator.whatif import load_scenario
from tests.whatif.small import scenario


def issues(folder: Path, *variants: Any, **fields: Any) -> list[str]:
    with pytest.raises(SnapshotError) as caught:
        scenario(folder, *variants, **fields)
    return [str(issue) for issue in caught.value.issues]


def test_everything_that_is_wrong_is_told_with_its_place(tmp_path: Path) -> None:
    told = issues(
        tmp_path,
        {"name": "a", "policy": {"protection_cap": "soon", "wndow": 3}, "load": "much"},
        {"title": "no name", "fail": [{"domain": "r1", "lasts": "1d"}]},
        {"name": "b/c", "add": [{"racks": 1}], "remove": [{"nodes": 1}], "jobs": [{"shift": "x"}]},
        base={},
        title="",
    )
    assert any(each.startswith("$.title: ") for each in told)
    assert any(each.startswith("$.variants[0].policy.protection_cap: ") for each in told)
    assert any("unknown field" in each and "window" in each for each in told)
    assert any(each.startswith("$.variants[0].load: ") for each in told)
    assert any(each.startswith("$.variants[1].name: the field is missing") for each in told)
    assert any(each.startswith("$.variants[1].fail[0].at: the field is missing") for each in told)
    assert any(each.startswith("$.variants[2].name: 'b/c' names no folder") for each in told)
    assert any("give one of architecture and like" in each for each in told)
    assert any("give pool, domain or node" in each for each in told)
    assert any(each.startswith("$.variants[2].jobs[0].shift: ") for each in told)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"base": {}}, "give one of trace and generate"),
        ({"base": {"trace": "x", "generate": {}}}, "give one of trace and generate"),
        ({"seeds": [1, 1]}, "1 is given twice"),
        ({"draw": "days"}, "nothing is drawn without seeds"),
        ({"seeds": [1], "draw": "generator"}, "a trace file has no generator"),
        ({"seeds": [1], "draw": "days", "jitter": "5m"}, "no effect where seeds move"),
        ({"seeds": [1], "draw": "jitter", "jitter": "-5m"}, "less than nothing"),
        ({"baseline": "w"}, 'valid are "v"'),
        ({"variants": []}, "nothing to compare"),
        ({"variants": 3}, "give an array of tables"),
        ({"variants": [{"name": "v"}, {"name": "v"}]}, "'v' is given twice"),
        ({"variants": [{"name": "base"}]}, "the trace as it is"),
        ({"variants": [{"name": "v", "jobs": [{}]}]}, "give times, shift or set"),
        ({"variants": [{"name": "v", "budgets": 3}]}, "give an array of tables"),
        ({"variants": [{"name": "v", "budgets": [{"file": "absent.json"}]}]}, "absent.json cannot be read"),
        ({"variants": [{"name": "v", "budgets": [{"author": "a", "reason": "r"}]}]}, "$.variants[0].budgets[0].changes"),
        ({"variants": [{"name": "v", "budgets": [{"author": "a", "at": 5}]}]}, "budgets[0].at: 5 is not valid here"),
        ({"variants": [{"name": "v", "budgets": [3]}]}, "$.variants[0].budgets[0]: 3 is not valid here"),
        ({"matrix": {"name": "x"}}, "give an array of tables"),
        ({"matrix": [{"name": "x", "set": "load"}]}, "give set and values, or variants"),
        ({"matrix": [{"name": "x", "set": "load", "values": []}]}, "give an array of values"),
        ({"matrix": [{"name": "x", "set": "lod", "values": [1]}]}, 'unknown field "lod"'),
        ({"matrix": [3]}, "$.matrix[0]: 3 is not valid here"),
        ({"matrix": [{"name": "x", "set": "load", "values": [1]}, {"name": "y", "set": "load", "values": [2, 3]}]},
         "two axes of the matrix set it"),
        ({"variants": [{"name": "v", "budgets": []}]}, "$.variants[0].budgets: [] changes nothing; fill it, or leave it out"),
        ({"variants": [{"name": "v", "policy": {}}]}, "$.variants[0].policy: {} changes nothing"),
        ({"matrix": [{"name": "x", "set": "fail", "values": [[]]}]}, "$.matrix[0].values[0].fail: [] changes nothing"),
        ({"variants": [{"name": "v", "jobs": [{"set": {}, "times": 2}]}]}, "$.variants[0].jobs[0].set: {} changes nothing"),
        ({"variants": [{"name": "v", "jobs": [{"speed": 2}]}]}, "$.variants[0].jobs[0].speed: it is the speed of a pool"),
        ({"variants": [{"name": "v", "jobs": [{"speed": 2, "set": {"pools": ["a", "b"]}}]}]}, "give it together with set"),
        ({"variants": [{"name": "v", "jobs": [{"speed": 0, "set": {"pools": ["a"]}}]}]}, "give a number from 0.01 to 1"),
        ({"variants": [{"name": "v", "fail": [{"node": "n", "at": "1h", "lasts": "0h"}]}]},
         '$.variants[0].fail[0].lasts: "0h" is no time at all'),
        ({"variants": [{"name": "v", "maintenance": [{"node": "n", "at": "1h", "lasts": "0"}]}]},
         '$.variants[0].maintenance[0].lasts: "0" is no time at all'),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(tmp_path: Path, fields: dict[str, Any], words: str) -> None:
    variants = [] if {"variants", "matrix"} & set(fields) else [{"name": "v"}]
    assert any(words in each for each in issues(tmp_path, *variants, **fields))


def test_a_matrix_is_multiplied_out_and_stands_beside_named_variants(tmp_path: Path) -> None:
    found = scenario(
        tmp_path,
        {"name": "own", "fail": [{"node": "n1", "at": "1h"}]},
        matrix=[
            {"name": "cap", "set": "policy.protection_cap", "values": ["2h", "4h"]},
            {"name": "other", "variants": [
                {"name": "few", "remove": [{"node": "n4"}], "policy": {"window": "1d"}},
                {"name": "many", "title": "More of it", "add": [{"like": "n1", "nodes": 2}]},
            ]},
        ],
    )  # fmt: skip
    assert [each.name for each in found.variants] == ["base", "own", "cap2h+few", "cap2h+many", "cap4h+few", "cap4h+many"]
    few, many = found.variants[2:4]
    assert few.raw == {"policy": {"protection_cap": 7200, "window": 86_400}, "remove": [{"node": "n4"}]}
    assert many.title == "policy.protection_cap = 2h; More of it"
    assert many.edits.add[0].nodes == 2


def test_lists_of_two_axes_come_one_after_the_other(tmp_path: Path) -> None:
    axis = [{"name": "x", "variants": [{"name": each, "remove": [{"node": each}]}]} for each in ("n1", "n2")]
    found = scenario(tmp_path, matrix=axis)
    assert [each.node for each in found.variants[1].edits.remove] == ["n1", "n2"]


def test_the_baseline_stands_first(tmp_path: Path) -> None:
    found = scenario(tmp_path, {"name": "a"}, {"name": "b"}, baseline="b")
    assert ([each.name for each in found.variants], found.baseline) == (["b", "a"], "b")


def test_a_file_names_others_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "question.toml"
    file.write_text(
        'title = "q"\nseeds = [3]\n[base.generate]\nfrom = "log.csv"\nbudgets = "tree.json"\n'
        '[replay]\ntick = "5m"\n[[variants]]\nname = "v"\nload = 1\n'
    )
    found = load_scenario(file)
    assert found.base.recipe is not None
    assert (found.base.recipe.log, found.base.recipe.budgets) == (tmp_path / "log.csv", tmp_path / "tree.json")
    assert (found.name, found.draw, found.replay.tick, found.variants[1].edits.load) == ("question", "generator", 300, 1)
    file.write_text('title = "q"\n[base.generate]\nscenario = "mine.toml"\n[[variants]]\nname = "v"\n')
    recipe = load_scenario(file).base.recipe
    assert recipe is not None
    assert recipe.scenario == str(tmp_path / "mine.toml")
    file.write_text("title = ")
    with pytest.raises(SnapshotError, match="is no TOML"):
        load_scenario(file)
