"""The file of a question as one document: TOML, with CSV files in place of some of its tables."""

from __future__ import annotations

import csv
import io
import re
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import msgspec

from allocator.domain import Issue, SnapshotError
from allocator.generate.files import read_text, refuse
from allocator.planning.document import TABLES, PlanDoc, Quarter
from allocator.wire.scalars import Name
from allocator.wire.shapes import problems

_TEXTS = (Name, Quarter, Name | None, Quarter | None)
_ROW = re.compile(r"^\$\.(\w+)\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class Places:
    """Where the rows of tables stand: paths of the document become places in the files that people wrote."""

    file: str
    tables: Mapping[str, str]

    def place(self, path: str) -> str:
        """The place of a path."""
        found = _ROW.match(path)
        if found is None or found[1] not in self.tables:
            return f"{self.file}: {path}"
        return f"{self.tables[found[1]]}, row {int(found[2]) + 1}: $" + path[found.end() :]

    def refuse(self, issues: Sequence[Issue]) -> SnapshotError:
        """The issues as an error."""
        return SnapshotError([replace(issue, path=self.place(issue.path)) for issue in issues])


def read_document(path: Path) -> tuple[PlanDoc, Places]:
    """Read a file and the tables it names.

    Raises
    ------
    SnapshotError
        With every field that cannot be read.
    """
    try:
        raw = tomllib.loads(read_text(path))
    except tomllib.TOMLDecodeError as error:
        raise refuse(str(path), f"is no TOML ({error})", "correct it") from error
    named = {table: str(raw[table]) for table in TABLES if isinstance(raw.get(table), str)}
    places = Places(str(path), named)
    kinds = {field.name: field.type for field in msgspec.structs.fields(PlanDoc)}
    for table, file in named.items():
        raw[table] = _read_rows(path.parent / file, get_args(kinds[table])[0])
    issues = problems(raw, PlanDoc, "$")
    if issues:
        raise places.refuse(issues)
    return msgspec.convert(raw, PlanDoc), places


def _read_rows(path: Path, kind: type) -> list[dict[str, Any]]:
    """The rows of a CSV file; empty cells are left out."""
    texts = {field.name for field in msgspec.structs.fields(kind) if field.type in _TEXTS}
    header, *rows = list(csv.reader(io.StringIO(read_text(path)))) or [[]]
    _check_shape(path.name, header, rows)
    cells = (dict(zip(header, row, strict=True)) for row in rows if row)
    return [_nested({key: _value(cell, key in texts) for key, cell in row.items() if cell}) for row in cells]


def _check_shape(name: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Refuse columns that are there twice, and rows with fewer or more cells than columns."""
    issues = [
        Issue(path=name, problem=f"the column {column!r} is there twice", remedy="leave one of them out")
        for column, times in Counter(header).items()
        if times > 1
    ]
    issues += [
        Issue(path=f"{name}, row {at}", problem=f"{len(row)} cells, {len(header)} columns", remedy="give every column a cell")
        for at, row in enumerate(rows, start=1)
        if row and len(row) != len(header)
    ]
    if issues:
        raise SnapshotError(issues)


def _value(cell: Any, text: bool) -> Any:
    """What a cell means: a number or true or false where it reads like one, unless the column holds text."""
    if text or not isinstance(cell, str):
        return cell
    for read in (int, float):
        try:
            return read(cell)
        except ValueError:
            continue
    return {"true": True, "false": False}.get(cell.strip().lower(), cell)


def _nested(row: Mapping[str, Any]) -> dict[str, Any]:
    """Columns such as `uses.power_kw` as members of a table."""
    found: dict[str, Any] = {}
    for key, value in row.items():
        outer, dot, inner = key.partition(".")
        if dot:
            found.setdefault(outer, {})[inner] = value
        else:
            found[key] = value
    return found
