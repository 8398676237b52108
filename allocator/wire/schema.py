"""JSON Schemas of the documents, made from the very types that decode them."""

from __future__ import annotations

from typing import Any

import msgspec

from allocator.wire.decision_doc import DecisionDoc
from allocator.wire.snapshot_doc import SnapshotDoc
from allocator.wire.trace_doc import TraceDoc

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def snapshot_schema() -> dict[str, Any]:
    """The JSON Schema of snapshots, draft 2020-12."""
    return schema_of(SnapshotDoc, "snapshot")


def decision_schema() -> dict[str, Any]:
    """The JSON Schema of decisions, draft 2020-12."""
    return schema_of(DecisionDoc, "decision")


def trace_schema() -> dict[str, Any]:
    """The JSON Schema of traces, draft 2020-12."""
    return schema_of(TraceDoc, "trace")


def schema_components(*kinds: type[msgspec.Struct], template: str) -> dict[str, Any]:
    """The JSON Schemas of several documents under their names without the suffix Doc, for a page that has them all.

    Parameters
    ----------
    template
        Where a schema stands in that page, with `{name}` for its name.
    """
    components = msgspec.json.schema_components(kinds, ref_template=template)[1]
    renamed: dict[str, Any] = _rename(components)
    return renamed


def schema_of(kind: type[msgspec.Struct], name: str) -> dict[str, Any]:
    """One self-contained schema; `$defs` are named without the suffix of the types inside."""
    (reference,), components = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    root = components.pop(kind.__name__)
    assert reference["$ref"].endswith(kind.__name__)
    schema = {
        "$schema": DIALECT,
        "$id": f"urn:allocator:{name}:1",
        **root,
        "title": f"Allocator {name}, version 1",
        "$defs": components,
    }
    renamed: dict[str, Any] = _rename(schema)
    return renamed


def _rename(value: Any) -> Any:
    """Drop the suffix Doc from the names of definitions, wherever they stand."""
    if isinstance(value, dict):
        return {key.removesuffix("Doc") if key.endswith("Doc") else key: _rename(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rename(item) for item in value]
    return value.removesuffix("Doc") if isinstance(value, str) and value.endswith("Doc") else value
