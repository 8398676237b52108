"""Variants as they are written: named ones, and the product of the axes of a matrix."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from allocator.domain import Issue
from allocator.whatif.budget_edits import BudgetEdit, array_of, budget_edits
from allocator.whatif.checks import edit_issues, empty_issues
from allocator.whatif.scenario_doc import AxisDoc, EditsDoc, VariantDoc
from allocator.whatif.spans import in_seconds
from allocator.wire.shapes import problems

BASE = "base"
"""Name of the variant without edits."""

_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_OWN = ("name", "title", "budgets")


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A variant, or one value of an axis."""

    name: str
    title: str
    raw: Mapping[str, Any]
    budgets: tuple[BudgetEdit, ...]
    place: str


def pieces_of(raw: Mapping[str, Any], folder: Path) -> tuple[list[Piece], list[Issue]]:
    """All variants of a file, the matrix multiplied out, and everything that is wrong with them."""
    issues: list[Issue] = []
    pieces = _listed(raw.get("variants", []), "$.variants", folder, issues)
    matrix = array_of(raw.get("matrix", []), "$.matrix", issues)
    axes = [_axis(axis, f"$.matrix[{at}]", folder, issues) for at, axis in enumerate(matrix)]
    if not issues and axes:
        pieces += [_joined(list(chosen), issues) for chosen in itertools.product(*axes)]
    if not issues:
        issues += _name_issues(pieces)
    return pieces, issues


def _listed(found: Any, path: str, folder: Path, issues: list[Issue]) -> list[Piece]:
    """Named variants, each with its edits."""
    return [
        piece
        for at, raw in enumerate(array_of(found, path, issues))
        for piece in _variant(raw, f"{path}[{at}]", folder, issues)
    ]


def _variant(raw: Any, path: str, folder: Path, issues: list[Issue]) -> Iterator[Piece]:
    raw = in_seconds(raw)
    plain = {key: value for key, value in raw.items() if key != "budgets"} if isinstance(raw, dict) else raw
    if wrong := problems(plain, VariantDoc, path):
        issues += wrong
        return
    if not _KEY.fullmatch(raw["name"]):
        remedy = "give letters, digits and . _ + - only, for it names a folder"
        issues.append(Issue(path=f"{path}.name", problem=f"{raw['name']!r} names no folder", remedy=remedy))
    yield _piece(raw["name"], raw.get("title") or raw["name"], raw, path, folder, issues)


def _piece(name: str, title: str, raw: Mapping[str, Any], path: str, folder: Path, issues: list[Issue]) -> Piece:
    """A piece whose edits have the right shape; what makes no sense in them is noted."""
    edits = {key: value for key, value in raw.items() if key not in _OWN}
    issues += [*empty_issues(raw, path), *edit_issues(msgspec.convert(edits, EditsDoc), path)]
    budgets = tuple(budget_edits(raw.get("budgets", []), f"{path}.budgets", folder, issues))
    kept = {key: value for key, value in raw.items() if key not in ("name", "title")}
    return Piece(name=name, title=title, raw=kept, budgets=budgets, place=path)


def _axis(raw: Any, path: str, folder: Path, issues: list[Issue]) -> list[Piece]:
    """The pieces of one axis."""
    own = {key: value for key, value in raw.items() if key not in ("values", "variants")} if isinstance(raw, dict) else raw
    if wrong := problems(own, AxisDoc, path):
        issues += wrong
        return []
    if ("variants" in raw) == ("set" in raw) or ("set" in raw) != ("values" in raw):
        issues.append(Issue(path=path, problem="it says not once what varies", remedy="give set and values, or variants"))
        return []
    if "variants" in raw:
        return _listed(raw["variants"], f"{path}.variants", folder, issues)
    if not isinstance(raw["values"], list) or not raw["values"]:
        issues.append(Issue(path=f"{path}.values", problem="there are none", remedy="give an array of values"))
        return []
    return [
        piece
        for at, value in enumerate(raw["values"])
        for piece in _setting(raw, value, f"{path}.values[{at}]", folder, issues)
    ]


def _setting(axis: Mapping[str, Any], value: Any, path: str, folder: Path, issues: list[Issue]) -> Iterator[Piece]:
    """The piece that gives one edit a value."""
    edits: Any = value
    for key in reversed(axis["set"].split(".")):
        edits = {key: edits}
    name = re.sub(r"[^A-Za-z0-9._+-]", "_", f"{axis['name']}{value}")
    yield from (
        replace(piece, title=f"{axis['set']} = {value}") for piece in _variant({"name": name, **edits}, path, folder, issues)
    )


def _joined(pieces: list[Piece], issues: list[Issue]) -> Piece:
    """One variant of one value of each axis."""
    raw: dict[str, Any] = {}
    for piece in pieces:
        raw = _merged(raw, piece.raw, piece.place, issues)
    return Piece(
        name="+".join(piece.name for piece in pieces),
        title="; ".join(piece.title for piece in pieces),
        raw=raw,
        budgets=tuple(change for piece in pieces for change in piece.budgets),
        place=pieces[-1].place,
    )


def _merged(one: Mapping[str, Any], other: Mapping[str, Any], path: str, issues: list[Issue]) -> dict[str, Any]:
    """Two sets of edits as one: tables field by field, lists one after the other."""
    found = dict(one)
    for key, value in other.items():
        if key not in found:
            found[key] = value
        elif isinstance(value, dict):
            found[key] = _merged(found[key], value, f"{path}.{key}", issues)
        elif isinstance(value, list):
            found[key] = [*found[key], *value]
        else:
            problem = "two axes of the matrix set it"
            if not any(issue.path == f"{path}.{key}" for issue in issues):
                issues.append(Issue(path=f"{path}.{key}", problem=problem, remedy="let one axis set it"))
    return found


def _name_issues(pieces: list[Piece]) -> Iterator[Issue]:
    if not pieces:
        yield Issue(path="$", problem="there is nothing to compare", remedy="give [[variants]] or a [[matrix]]")
    seen: set[str] = set()
    for piece in pieces:
        if piece.name in seen:
            yield Issue(path=piece.place, problem=f"{piece.name!r} is given twice", remedy="give every variant its own name")
        seen.add(piece.name)
