"""What a scenario leaves beside its cells: one document and two tables."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from allocator.whatif.comparison import Row

WHATIF = "whatif.json"
COMPARISON = "comparison.csv"
PROJECTS = "projects.csv"
POOLS = "pools.csv"


def write_document(path: Path, document: Mapping[str, Any]) -> None:
    """Write JSON for programs and eyes."""
    write_whole(path, (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode())


def write_table(path: Path, rows: Sequence[Row]) -> None:
    """Write tidy rows as CSV; what cannot be told is empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(Row._fields)
    writer.writerows(rows)
    write_whole(path, text.getvalue().encode())


def write_whole(path: Path, data: bytes) -> None:
    """Write beside the file and take its place, so that nobody sees half of it."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes(data)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
