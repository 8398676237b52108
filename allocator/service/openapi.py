"""The OpenAPI document, made from the types that decode the documents and from the table of parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import allocator
from allocator.service.documents import PairDoc, ProblemDoc, StateDoc, VerdictDoc
from allocator.service.parameters import Parameter, parameters_of
from allocator.service.problems import MEDIA_TYPE, Kind
from allocator.service.settings import Settings
from allocator.service.tokens import Role
from allocator.wire.decision_doc import DecisionDoc
from allocator.wire.schema import schema_components
from allocator.wire.snapshot_doc import SnapshotDoc

JSON = "application/json"
_PLACE = "#/components/schemas/{name}"


@dataclass(frozen=True, slots=True)
class Operation:
    """A call: what it does, the role it needs, what goes in and what comes out."""

    title: str
    text: str
    role: Role
    body: str
    answer: Mapping[str, Any]
    headers: Mapping[str, str]


def _reference(name: str) -> dict[str, str]:
    return {"$ref": _PLACE.format(name=name)}


_VIEW = {"type": "object", "description": "plain data, as explain --json prints it"}
_TEXT = {"type": "string", "description": "for people"}

OPERATIONS: Mapping[str, Operation] = {
    "decisions": Operation(
        "Decide one epoch",
        "Who starts, who stops and what is reserved. The same snapshot, engine and seed give the same decision but for timing.",
        Role.DECIDE,
        "Snapshot",
        {JSON: _reference("Decision")},
        {"Allocator-Snapshot": "digest of the snapshot", "Allocator-Decision": "digest of the decision without timing"},
    ),
    "verify": Operation(
        "Check a decision against every rule",
        "Reads nothing but the two documents, and recomputes the score. A broken rule is an answer, not an error.",
        Role.READ,
        "Pair",
        {JSON: _reference("Verdict")},
        {},
    ),
    "apply": Operation(
        "The snapshot after a decision",
        "Usage is recorded, stops are requeued, promises and reservations carried over.",
        Role.READ,
        "Pair",
        {JSON: _reference("Snapshot")},
        {"Allocator-Snapshot": "digest of the new snapshot", "Allocator-Warning": "the decision was made for another snapshot"},
    ),
    "explain": Operation(
        "Explain a decision to people",
        "The whole epoch, one workload, or one allocation. With Accept: text/plain as text.",
        Role.READ,
        "Pair",
        {JSON: _VIEW, "text/plain": _TEXT},
        {},
    ),
}

_ANSWERS = (
    Kind.BAD_REQUEST,
    Kind.UNAUTHENTICATED,
    Kind.FORBIDDEN,
    Kind.SLOW_BODY,
    Kind.TOO_LARGE,
    Kind.MEDIA,
    Kind.BAD_DOCUMENT,
    Kind.TOO_MANY,
    Kind.INTERNAL,
    Kind.BUSY,
)
"""What a call may answer besides 200."""


def openapi(settings: Settings) -> dict[str, Any]:
    """The OpenAPI document, version 3.1, whose dialect of JSON Schema is that of `allocator schema`."""
    components = schema_components(SnapshotDoc, DecisionDoc, PairDoc, VerdictDoc, ProblemDoc, StateDoc, template=_PLACE)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "gpu-epoch-allocator",
            "version": allocator.__version__,
            "description": "Decides who runs on a shared GPU cluster: snapshot in, decision out.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "security": [{"token": []}],
        "paths": {
            **{f"/v1/{name}": {"post": _call(name, operation, settings)} for name, operation in OPERATIONS.items()},
            **_pages(),
        },
        "components": {
            "schemas": components,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "roles: read, and decide, which covers read"}
            },
        },
    }


def _call(name: str, operation: Operation, settings: Settings) -> dict[str, Any]:
    return {
        "operationId": name,
        "summary": operation.title,
        "description": f"{operation.text} Role: {operation.role}.",
        "parameters": [_parameter(parameter) for parameter in parameters_of(name, settings)],
        "requestBody": {
            "required": True,
            "description": "JSON, plain or gzip-compressed",
            "content": {JSON: {"schema": _reference(operation.body)}},
        },
        "responses": {
            "200": {
                "description": "done",
                "headers": {key: _header(text) for key, text in operation.headers.items()},
                "content": {kind: {"schema": schema} for kind, schema in operation.answer.items()},
            },
            **{str(kind.status): _problem(kind) for kind in _ANSWERS},
        },
    }


def _parameter(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": parameter.where,
        "required": False,
        "description": parameter.meaning,
        "schema": dict(parameter.schema),
    }


def _header(text: str) -> dict[str, Any]:
    return {"description": text, "schema": {"type": "string"}}


def _problem(kind: Kind) -> dict[str, Any]:
    retry = {"Retry-After": _header("seconds after which to try again")} if kind in (Kind.TOO_MANY, Kind.BUSY) else {}
    return {
        "description": kind.value[2],
        "content": {MEDIA_TYPE: {"schema": _reference("Problem")}},
        **({"headers": retry} if retry else {}),
    }


def _pages() -> dict[str, Any]:
    """What is only read: health, metrics, this document."""
    state = {"content": {JSON: {"schema": _reference("State")}}}
    page = {"content": {JSON: {"schema": {"type": "object"}}}}
    text = {"content": {"text/plain": {"schema": {"type": "string"}}}}
    return {
        "/healthz": _page("health", "Whether the server answers at all", {"200": {"description": "it does", **state}}),
        "/readyz": _page(
            "ready",
            "Whether calls are served",
            {"200": {"description": "they are", **state}, "503": {"description": "starting or stopping", **state}},
        ),
        "/metrics": _page(
            "metrics",
            "Metrics for Prometheus",
            {
                "200": {"description": "the text format of Prometheus", **text},
                **{str(kind.status): _problem(kind) for kind in (Kind.UNAUTHENTICATED, Kind.FORBIDDEN)},
            },
            role=Role.READ,
        ),
        "/openapi.json": _page("openapi", "This document", {"200": {"description": "OpenAPI 3.1", **page}}),
    }


def _page(name: str, title: str, responses: Mapping[str, Any], role: Role | None = None) -> dict[str, Any]:
    page: dict[str, Any] = {"operationId": name, "summary": title, "responses": dict(responses)}
    if role is None:
        return {"get": {**page, "description": "Needs no token.", "security": []}}
    return {"get": {**page, "description": f"Role: {role}."}}
