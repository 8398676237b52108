"""Every way in which a decoded JSON value departs from a type of the wire, not just the first."""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from msgspec import inspect

from allocator.domain import Issue, printable

_SHOWN = 60


def problems(value: Any, wanted: Any, path: str) -> list[Issue]:
    """All issues of `value`, which should be of the type `wanted`; `path` is where it stands."""
    return list(_check(value, _type_info(wanted), path))


def show(value: Any) -> str:
    """A value as JSON, short enough for a message and safe for a terminal."""
    written = json.dumps(value, ensure_ascii=False, default=str)
    text = printable(written[: _SHOWN + 1])
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def field_path(path: str, key: str) -> str:
    """The JSON path of a member."""
    return f"{path}.{key}" if key.isidentifier() and key.isascii() else f"{path}[{json.dumps(key)}]"


def nearest(name: str, valid: Sequence[str], shown: int = 12) -> str:
    """What would be valid instead of an unknown name: the closest ones, or the first few."""
    close = difflib.get_close_matches(name, valid, n=1) if len(valid) <= 10_000 else []
    if close:
        return f"did you mean {show(close[0])}?"
    if not valid:
        return "none is defined"
    listed = ", ".join(show(item) for item in valid[:shown])
    return f"valid are {listed}" + (f" and {len(valid) - shown} more" if len(valid) > shown else "")


@cache
def _type_info(wanted: Any) -> inspect.Type:
    return inspect.type_info(wanted)


@cache
def _fields(cls: type) -> tuple[inspect.Field, ...]:
    info = inspect.type_info(cls)
    assert isinstance(info, inspect.StructType)
    return info.fields


def _check(value: Any, wanted: inspect.Type, path: str) -> Iterator[Issue]:
    """Dispatch by kind; what is said of a simple value belongs to what would be valid."""
    kind = wanted.type if isinstance(wanted, inspect.Metadata) else wanted
    match kind:
        case inspect.StructType():
            yield from _check_struct(value, kind, path)
        case inspect.DictType():
            yield from _check_dict(value, kind, path)
        case inspect.ListType() | inspect.VarTupleType():
            yield from _check_list(value, kind, path)
        case inspect.UnionType():
            yield from _check_union(value, kind, path)
        case _:
            if not _scalar_fits(value, kind):
                yield _issue(path, value, expectation(wanted))


def _check_struct(value: Any, wanted: inspect.StructType, path: str) -> Iterator[Issue]:
    if not isinstance(value, dict):
        yield _issue(path, value, "an object")
        return
    fields = {field.encode_name: field for field in _fields(wanted.cls)}
    for key in value:
        if key not in fields:
            yield Issue(path=field_path(path, key), problem=f"unknown field {show(key)}", remedy=nearest(key, list(fields), 40))
    for key, field in fields.items():
        if key in value:
            yield from _check(value[key], field.type, field_path(path, key))
        elif field.required:
            yield Issue(path=field_path(path, key), problem="the field is missing", remedy=f"give {expectation(field.type)}")


def _check_dict(value: Any, wanted: inspect.DictType, path: str) -> Iterator[Issue]:
    if not isinstance(value, dict):
        yield _issue(path, value, "an object")
        return
    if wanted.min_length and len(value) < wanted.min_length:
        yield Issue(path=path, problem="the object is empty", remedy=f"give at least {wanted.min_length} entry")
    for key, item in value.items():
        if not key:
            yield Issue(path=path, problem="an empty name", remedy="give a non-empty string")
        yield from _check(item, wanted.value_type, field_path(path, key))


def _check_list(value: Any, wanted: inspect.ListType | inspect.VarTupleType, path: str) -> Iterator[Issue]:
    if not isinstance(value, list):
        yield _issue(path, value, "an array")
        return
    if wanted.min_length and len(value) < wanted.min_length:
        yield Issue(path=path, problem="the array is empty", remedy=f"give at least {wanted.min_length} element")
    for at, item in enumerate(value):
        yield from _check(item, wanted.item_type, f"{path}[{at}]")


def _check_union(value: Any, wanted: inspect.UnionType, path: str) -> Iterator[Issue]:
    """The unions of the wire are all "T or null"."""
    if value is not None:
        for kind in wanted.types:
            if not isinstance(kind, inspect.NoneType):
                yield from _check(value, kind, path)


def _scalar_fits(value: Any, wanted: inspect.Type) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    match wanted:
        case inspect.BoolType():
            return isinstance(value, bool)
        case inspect.IntType():
            return number and isinstance(value, int) and _in_range(value, wanted)
        case inspect.FloatType():
            return number and math.isfinite(value) and _in_range(value, wanted)
        case inspect.StrType():
            return isinstance(value, str) and len(value) >= (wanted.min_length or 0)
        case inspect.EnumType():
            return value in [member.value for member in wanted.cls]
        case inspect.LiteralType():
            return value in wanted.values and not isinstance(value, bool)
    raise AssertionError(f"no such type on the wire: {wanted}")


def _in_range(value: float, wanted: inspect.IntType | inspect.FloatType) -> bool:
    return (wanted.ge is None or value >= wanted.ge) and (wanted.le is None or value <= wanted.le)


def expectation(wanted: inspect.Type) -> str:
    """What would be valid, in words."""
    match wanted:
        case inspect.Metadata():
            about = (wanted.extra_json_schema or {}).get("description", "")
            return expectation(wanted.type) + (f" ({about})" if about else "")
        case inspect.UnionType():
            return " or ".join("null" if isinstance(kind, inspect.NoneType) else expectation(kind) for kind in wanted.types)
        case inspect.EnumType():
            return _one_of([member.value for member in wanted.cls])
        case inspect.LiteralType():
            return _one_of(wanted.values)
        case inspect.IntType() | inspect.FloatType():
            return ("an integer" if isinstance(wanted, inspect.IntType) else "a number") + _range(wanted)
        case inspect.StrType():
            return "a non-empty string" if wanted.min_length else "a string"
    return _WORDS.get(type(wanted), "an object")


_WORDS: Mapping[type[inspect.Type], str] = {
    inspect.BoolType: "true or false",
    inspect.ListType: "an array",
    inspect.VarTupleType: "an array",
}


def _one_of(values: Sequence[object]) -> str:
    listed = ", ".join(map(show, values))
    return f"one of {listed}" if len(values) > 1 else listed


def _range(wanted: inspect.IntType | inspect.FloatType) -> str:
    if wanted.ge is None:
        return ""
    return f", at least {wanted.ge:,}" if wanted.le is None else f" from {wanted.ge:,} to {wanted.le:,}"


def _issue(path: str, value: Any, wanted: str) -> Issue:
    return Issue(path=path, problem=f"{_kind(value)} is not valid here", remedy=f"give {wanted}")


def _kind(value: Any) -> str:
    """The offending value; for nested ones their kind, so that messages stay short."""
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list):
        return "an array"
    if isinstance(value, float) and not math.isfinite(value):
        return "a number out of range"
    return show(value)
