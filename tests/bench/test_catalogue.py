"""Names, suites and files: what a word on the command line stands for."""

from __future__ import annotations

from pathlib import Path

import pytest

from allocator.bench.catalogue import Catalogue, find_folder
from allocator.bench.documents import EntryDoc, FamiliesDoc, LimitsDoc, read_entry, read_toml
from allocator.bench.limits import QUANTITIES
from allocator.domain import SnapshotError
from allocator.generate import FAMILIES

ROOT = Path(__file__).resolve().parents[2]

LITTLE = """
version = 1
[[instance]]
name = "mixed-64"
family = "mixed"
gpus = 64
special = "small"
seeds = [3, 4]
[[instance]]
name = "ones-64"
family = "ones"
gpus = 64
special = "ones"
[suite.both]
about = "both"
engines = ["greedy", "portfolio"]
budgets = [1.0, 2.0]
parts = [{ instance = "mixed-64" }, { instance = "ones-64", seeds = [7] }]
"""


@pytest.fixture
def little(tmp_path: Path) -> Catalogue:
    (tmp_path / "families.toml").write_text(LITTLE)
    return Catalogue.open(tmp_path)


@pytest.fixture(scope="module")
def ours() -> Catalogue:
    return Catalogue.open(ROOT / "instances")


def keys(catalogue: Catalogue, *names: str, **fields: object) -> list[tuple[str, int]]:
    return list(dict.fromkeys(case.instance.key for case in catalogue.cases(names, **fields)))  # type: ignore[arg-type]


def test_a_suite_is_every_instance_with_every_engine_and_budget(little: Catalogue) -> None:
    cases = little.cases(["both"])
    assert len(cases) == len(set(cases)) == 3 * 2 * 2
    assert keys(little, "both") == [("mixed-64", 3), ("mixed-64", 4), ("ones-64", 7)]


def test_what_is_given_replaces_what_a_suite_says(little: Catalogue) -> None:
    cases = little.cases(["both"], engines=["greedy"], budgets=[5.0], seeds=[9])
    assert [(case.instance.key, case.engine, case.budget) for case in cases] == [
        (("mixed-64", 9), "greedy", 5.0),
        (("ones-64", 9), "greedy", 5.0),
    ]


def test_names_of_instances_and_families(little: Catalogue) -> None:
    assert keys(little, "mixed-64") == keys(little, "mixed") == [("mixed-64", 3), ("mixed-64", 4)]
    assert keys(little, "ones-64", seeds=[1, 2]) == [("ones-64", 1), ("ones-64", 2)]
    assert {(case.engine, case.budget) for case in little.cases(["ones"])} == {("portfolio", 10.0)}


def test_names_of_folders_and_files(ours: Catalogue) -> None:
    assert keys(ours, "tiny/give-way") == [("tiny/give-way", -1)]
    assert ("tiny/give-way", -1) in keys(ours, "tiny")
    assert len(keys(ours, "tiny")) == 15
    folder = ROOT / "instances" / "tiny" / "give-way"
    assert keys(ours, str(folder)) == keys(ours, str(folder) + "/") == [("give-way", -1)]
    assert keys(ours, str(folder / "snapshot.json")) == [("snapshot", -1)]
    (case,) = ours.cases(["tiny/give-way"])
    assert case.instance.lower_bound == 367_200


def test_known_bounds_come_with_their_instances(little: Catalogue, ours: Catalogue) -> None:
    assert [case.instance.lower_bound for case in little.cases(["mixed"])] == [None, None]
    (case, *_) = ours.cases(["mixed-256"])
    assert case.instance.lower_bound is not None
    assert case.instance.digest is not None


def test_the_same_instance_of_two_names_is_run_once(little: Catalogue) -> None:
    assert len(set(little.cases(["mixed", "mixed-64"]))) == 2


def test_unknown_names_are_refused_with_what_there_is(little: Catalogue) -> None:
    with pytest.raises(SnapshotError, match=r"nothing is called 'nought'.* both, mixed, ones"):
        little.cases(["nought"])


def test_a_suite_names_only_instances_that_there_are(tmp_path: Path) -> None:
    (tmp_path / "families.toml").write_text(LITTLE.replace('instance = "ones-64", seeds', 'instance = "ones-65", seeds'))
    with pytest.raises(SnapshotError, match="ones-65"):
        Catalogue.open(tmp_path)


@pytest.mark.parametrize(
    ("old", "new"), [("gpus = 64", 'gpus = "64"'), ("special", "spezial"), ("version = 1", "version = 2"), ("]]", "")]
)
def test_a_file_that_is_wrong_is_refused_by_name(tmp_path: Path, old: str, new: str) -> None:
    (tmp_path / "families.toml").write_text(LITTLE.replace(old, new))
    with pytest.raises(SnapshotError, match=r"families\.toml"):
        Catalogue.open(tmp_path)


def test_the_folder_of_the_instances(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_folder(None) == ROOT / "instances"
    (tmp_path / "instances").mkdir()
    (tmp_path / "instances" / "families.toml").write_text(LITTLE)
    assert find_folder(None) == Path("instances")
    with pytest.raises(SnapshotError, match="nowhere"):
        find_folder(Path("nowhere"))


def test_our_own_files_name_only_what_there_is(ours: Catalogue) -> None:
    assert {doc.family for doc in ours.doc.instance} == set(FAMILIES)
    assert len({doc.name for doc in ours.doc.instance}) == len(ours.doc.instance)
    assert {"smoke", "foundation", "families"} <= set(ours.doc.suite)
    foundation = ours.doc.suite["foundation"]
    seeds = sorted((seed, part.instance) for part in foundation.parts for seed in part.seeds or ())
    assert seeds == [(seed, "mixed-1024" if seed % 2 else "mixed-1024-3") for seed in range(1, 21)]
    limits = read_toml(ROOT / "benchmarks" / "limits.toml", LimitsDoc)
    for limit in limits.limit:
        for side in (limit.over, limit.under):
            assert side.quantity in QUANTITIES
            ours.instance(side.instance, limit.seeds[0])


def test_an_entry_has_an_optimum_or_both_bounds(tmp_path: Path) -> None:
    path = tmp_path / "entry.json"
    proof = '"proof": {"engine": "e", "version": "v"}'
    text = '{"version": 1, "title": "t", "special": "s", ' + proof + ', "licence": "l", "source": "s"%s}'
    for wrong in (
        "",
        ', "lower_bound": 1',
        ', "optimum": 1, "lower_bound": 1',
        ', "optimum": 1, "lower_bound": 1, "upper_bound": 2',
    ):
        path.write_text(text % wrong)
        with pytest.raises(SnapshotError, match="bounds"):
            read_entry(path)
    path.write_text(text % ', "lower_bound": 1, "upper_bound": 2.5')
    assert read_entry(path).upper_bound == 2.5
    assert isinstance(read_entry(path), EntryDoc)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SnapshotError, match=r"nought\.toml: cannot be read"):
        read_toml(tmp_path / "nought.toml", FamiliesDoc)
