"""The OpenAPI document says what the service does: checked as such, and by calls that are made from it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
import schemathesis
from hypothesis import settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from allocator.service.app import Service, create_app
from allocator.service.calls import Call
from allocator.service.openapi import OPERATIONS, openapi
from allocator.service.parameters import parameters_of
from allocator.service.settings import Settings
from allocator.wire import decision_schema, snapshot_schema
from tests.conftest import FUZZ, also_long
from tests.service.conftest import InlinePool
from tests.wire.documents import Json

CASES = 500 if FUZZ else 8
"""Calls made from the document for each operation; four operations take documents."""

SETTINGS = Settings(max_seconds=1.0, default_seconds=1.0, per_client=1000)


def app() -> Any:
    """A service for everybody, in this process."""
    made = create_app(SETTINGS)
    service: Service = made.state.service
    service.pool = InlinePool()  # type: ignore[assignment]
    return made


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from [item] if key == "$ref" else references(item)
    elif isinstance(value, list):
        for item in value:
            yield from references(item)


def with_definitions(value: Any) -> Any:
    """The schema of a component as it stands in a schema of its own."""
    if isinstance(value, dict):
        return {key: with_definitions(item) for key, item in value.items()}
    if isinstance(value, list):
        return [with_definitions(item) for item in value]
    return value.replace("#/components/schemas/", "#/$defs/") if isinstance(value, str) else value


def test_every_reference_leads_somewhere() -> None:
    document = openapi(SETTINGS)
    names = set(document["components"]["schemas"])
    for reference in references(document):
        assert reference.removeprefix("#/components/schemas/") in names
    for schema in document["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize(("name", "schema"), [("Snapshot", snapshot_schema()), ("Decision", decision_schema())])
def test_the_schemas_are_those_of_the_command_line(name: str, schema: Json) -> None:
    components = with_definitions(openapi(SETTINGS)["components"]["schemas"])
    definitions = schema.pop("$defs")
    own = {key: value for key, value in schema.items() if key not in ("$schema", "$id", "title")}
    assert {key: value for key, value in components[name].items() if key != "title"} == own
    assert {key: components[key] for key in definitions} == definitions


def test_every_operation_and_page_is_documented() -> None:
    document = openapi(SETTINGS)
    routes = {(route.path, method) for route in app().routes for method in route.methods - {"HEAD"}}
    described = {(path, method.upper()) for path, methods in document["paths"].items() for method in methods}
    assert described == routes
    for name in OPERATIONS:
        post = document["paths"][f"/v1/{name}"]["post"]
        assert {item["name"] for item in post["parameters"]} == {item.name for item in parameters_of(name, SETTINGS)}
        assert f"Role: {OPERATIONS[name].role}" in post["description"]


def test_parameters_set_fields_of_a_call() -> None:
    for name in OPERATIONS:
        for parameter in parameters_of(name, SETTINGS):
            assert parameter.field in Call.__struct_fields__
            assert re.fullmatch(r"[A-Za-z-]+", parameter.name)


schema = schemathesis.openapi.from_dict(openapi(SETTINGS))
schema.app = app()
for phase in (schema.config.phases.examples, schema.config.phases.coverage):
    phase.enabled = FUZZ  # hundreds of systematic cases

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    unsupported_method,
]


@also_long
@schema.parametrize()
@settings(max_examples=CASES)
def test_calls_made_from_the_document(case: Any) -> None:
    """No call ends in an internal error, and every answer is of a kind that the document names."""
    answer = case.call()
    case.validate_response(answer, checks=CHECKS)
