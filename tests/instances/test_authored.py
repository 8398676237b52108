"""The instances that are files: valid, as authored, and solved to the optimum that they claim."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from allocator.bench.documents import EntryDoc, ReservedDoc, entry_schema, read_entry
from allocator.domain import Decision
from allocator.engine import allocate
from allocator.verify import RULES, verify
from allocator.wire import decision_schema, load_decision, load_snapshot, snapshot_schema
from tests.instances.make import GROUPS, ROOT, TABLE, files_of, optimum_text, table_of
from tests.instances.shares import SAME_DECISION

FOLDERS = sorted(path.parent for path in ROOT.glob("*/*/entry.json"))
TWINS = [folder for folder in FOLDERS if folder.parent.name == "rules"]
OF_THE_DOCUMENT = {"document", "score"}
"""Rules without twins: they are about what a decision says of itself."""


def name_of(folder: Path) -> str:
    return f"{folder.parent.name}/{folder.name}"


def validator(schema: Any) -> Draft202012Validator:
    return Draft202012Validator(schema)


def test_every_authored_instance_is_a_folder_and_nothing_else_in_its_group_is() -> None:
    authored = {f"{group}/{one.name}" for group, members in GROUPS.items() for one in members}
    assert {name_of(folder) for folder in FOLDERS if folder.parent.name in GROUPS} == authored


@pytest.mark.parametrize("group", GROUPS)
def test_the_files_are_as_authored(group: str) -> None:
    for one in GROUPS[group]:
        for path, text in files_of(group, one):
            assert path.read_text(encoding="utf-8") == text, f"{path}: run python -m tests.instances.make"


@pytest.mark.parametrize("folder", FOLDERS, ids=name_of)
def test_every_document_fits_its_schema(folder: Path) -> None:
    snapshots, decisions, entries = map(validator, (snapshot_schema(), decision_schema(), entry_schema()))
    for path in folder.glob("*.json"):
        kind = {"snapshot.json": snapshots, "entry.json": entries}.get(path.name, decisions)
        assert [error.message for error in kind.iter_errors(json.loads(path.read_bytes()))] == [], path
    assert load_snapshot(folder / "snapshot.json").now > 0


def test_the_schema_of_entries_is_as_published() -> None:
    assert json.loads((ROOT / "entry.schema.json").read_bytes()) == entry_schema()
    validator(entry_schema()).check_schema(entry_schema())


@pytest.mark.parametrize("folder", FOLDERS, ids=name_of)
def test_the_portfolio_proves_the_optimum(folder: Path) -> None:
    entry, snapshot = read_entry(folder / "entry.json"), load_snapshot(folder / "snapshot.json")
    decision = allocate(snapshot, time_limit=60)
    assert verify(snapshot, decision).broken == ()
    if entry.optimum is not None:
        assert (decision.solver.status, decision.solver.objective / 1000) == ("optimal", entry.optimum)
    else:
        assert decision.solver.objective / 1000 >= (entry.lower_bound or 0)
        assert (decision.solver.bound or 0) / 1000 <= (entry.upper_bound or 0)
    check_expectations(entry, decision)


def check_expectations(entry: EntryDoc, decision: Decision) -> None:
    if entry.expect is None:
        return
    rows = {
        "starts": decision.starts,
        "stops": decision.preemptions,
        "promotions": decision.promotions,
        "renewals": decision.renewals,
    }
    for name, found in rows.items():
        wanted = getattr(entry.expect, name)
        assert wanted is None or sorted(row.workload for row in found) == wanted, name  # type: ignore[attr-defined]
    reserved = {
        row.workload: ReservedDoc(domain=list(row.domain), nodes=row.nodes, start=row.start) for row in decision.reservations
    }
    assert entry.expect.reserved in (None, reserved)
    placed = {row.workload: sorted(row.placement) for row in decision.starts}
    assert {name: placed.get(name) for name in entry.expect.placed} == entry.expect.placed
    waits = {row.workload: row.reason.value for row in decision.waiting}
    assert {name: waits.get(name) for name in entry.expect.waits} == entry.expect.waits


@pytest.mark.parametrize("like", SAME_DECISION)
def test_what_is_the_same_is_decided_the_same(like: str) -> None:
    def moves(name: str) -> tuple[Any, ...]:
        decision = allocate(load_snapshot(ROOT / "situations" / name / "snapshot.json"), time_limit=60)
        return decision.starts, decision.preemptions, decision.promotions

    wanted = moves(like)
    for name in SAME_DECISION[like]:
        assert moves(name) == wanted, name


@pytest.mark.parametrize("one", GROUPS["tiny"], ids=lambda one: one.name)
def test_the_derivation_by_hand_arrives_at_the_optimum(one: Any) -> None:
    folder = ROOT / "tiny" / one.name
    entry = read_entry(folder / "entry.json")
    assert entry.optimum == one.optimum
    assert f"**{optimum_text(entry)} GPU-seconds**" in (folder / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("folder", TWINS, ids=name_of)
def test_the_verifier_tells_the_twins_apart(folder: Path) -> None:
    entry, snapshot = read_entry(folder / "entry.json"), load_snapshot(folder / "snapshot.json")
    assert verify(snapshot, load_decision(folder / "accepted.json")).broken == ()
    refused = verify(snapshot, load_decision(folder / "refused.json")).broken
    assert set(refused) == {entry.rule, *entry.also_broken}


def test_every_rule_has_twins() -> None:
    rules = {read_entry(folder / "entry.json").rule for folder in TWINS}
    assert rules == set(RULES) - OF_THE_DOCUMENT


@pytest.mark.parametrize("page", [*ROOT.glob("*.md"), ROOT.parent / "benchmarks" / "README.md"], ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_the_tables_of_the_readme_are_those_of_the_entries() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = {match[2]: match[0] for match in TABLE.finditer(text)}
    assert set(found) == set(GROUPS)
    for group, table in found.items():
        assert table_of(group) in table, "run python -m tests.instances.make"
