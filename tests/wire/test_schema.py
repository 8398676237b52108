"""The schemas are valid themselves, closed, described, and agree with the decoder."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from allocator.domain import SnapshotError
from allocator.wire import decision_schema, decode_snapshot, snapshot_schema, trace_schema
from tests.wire.documents import Json, document, encoded, job, running

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "docs" / "examples").glob("*.json"))
SCENARIOS = sorted((ROOT.parent / "shared" / "scenarios" / "json").glob("*.json"))

MEANT_TO_FAIL = {"S18-impossible": {"tasks"}}
"""Scenarios that hold wrong fields on purpose, and which."""


def objects_of(value: Any) -> Iterator[Json]:
    if isinstance(value, dict):
        yield value
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from objects_of(item)


@pytest.mark.parametrize(
    "schema", [snapshot_schema(), decision_schema(), trace_schema()], ids=["snapshot", "decision", "trace"]
)
def test_schemas_are_closed_and_described(schema: Json) -> None:
    Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert "Doc" not in json.dumps(schema)
    structs = [part for part in objects_of(schema) if "properties" in part]
    assert all(part["additionalProperties"] is False and part["description"] for part in structs)
    references = {part["$ref"] for part in objects_of(schema) if "$ref" in part}
    assert references <= {f"#/$defs/{name}" for name in schema["$defs"]}


@pytest.mark.parametrize(
    "value",
    [
        document(),
        document(job("w"), running("r", {"n1": 1})),
        document(now=-1),
        document(now=1.5),
        document(job("w", colour=1)),
        document(running("r", {"n1": 0})),
        document(policy={"window": 0}),
        document(policy={"half_life": None, "express": {"pool_share": 2}}),
        document(policy=None),
        {"version": 1},
    ],
)
def test_schema_and_decoder_agree(value: Json) -> None:
    try:
        accepted = not decode_snapshot(encoded(value)).rejected
    except SnapshotError:
        accepted = False
    assert Draft202012Validator(snapshot_schema()).is_valid(value) == accepted


def test_there_are_examples() -> None:
    assert EXAMPLES


@pytest.mark.parametrize("path", [*EXAMPLES, *SCENARIOS], ids=lambda path: path.stem)
def test_every_example_fits_the_schema(path: Path) -> None:
    if path.stem == "S18-not-a-number":
        pytest.skip("is no JSON, on purpose")
    value = json.loads(path.read_bytes())
    if "cluster" not in value:
        pytest.skip("is no snapshot")
    wrong = {str(error.path[-1]) for error in Draft202012Validator(snapshot_schema()).iter_errors(value)}
    assert wrong == MEANT_TO_FAIL.get(path.stem, set())
    assert decode_snapshot(path.read_bytes()).now == value["now"]
