"""Forms of job logs: how one is recognised, and how it is read row by row."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Protocol, TypeAlias

from allocator.generate.files import refuse
from allocator.generate.params import DAY
from allocator.generate.sources.fields import Record
from allocator.generate.sources.rows import Source, SourceRow, UnusableError

ReadRow: TypeAlias = Callable[[Source, Record], SourceRow]
"""Makes a row of a record, or raises `UnusableError`."""


class Form(Protocol):
    """A form of job logs.

    Attributes
    ----------
    name
        As in `--format NAME`.
    title
        For people.
    gpus
        The size of cluster that a log of this form is known to fill.
    pools
        1 or 3: how many pools that cluster has.
    """

    @property
    def name(self) -> str:
        """See above."""

    @property
    def title(self) -> str:
        """See above."""

    @property
    def gpus(self) -> int:
        """See above."""

    @property
    def pools(self) -> int:
        """See above."""

    def fits(self, content: str) -> int:
        """How surely a log is of this form: the columns that agree, 0 if it is not."""
        ...

    def fill(self, source: Source, content: str) -> None:
        """Read the log into a source whose nodes are known.

        Raises
        ------
        SnapshotError
            Where it has not the columns of the form.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TableForm:
    """A table with a header line.

    Attributes
    ----------
    columns
        The columns that are needed; names are compared without regard to case.
    read
        Makes one row of a record, or raises `UnusableError`.
    origin
        Start of the log, seconds since the epoch; None: rows have dates, and day 0 is that of the first submission.
    """

    name: str
    title: str
    columns: Sequence[str]
    read: ReadRow
    gpus: int
    origin: int | None = None
    pools: int = 1
    delimiter: str = ","
    shares: Mapping[str, Fraction] = field(default_factory=dict)
    researchers: bool = False

    def fits(self, content: str) -> int:
        """The number of columns, if all are there."""
        header = {name.strip().lower() for name in content.partition("\n")[0].split(self.delimiter)}
        return len(self.columns) if header >= {name.lower() for name in self.columns} else 0

    def fill(self, source: Source, content: str) -> None:
        """Read every row, or count why not."""
        reader = csv.reader(io.StringIO(content), delimiter=self.delimiter)
        header = [name.strip().lower() for name in next(reader, [])]
        if missing := [name for name in self.columns if name.lower() not in header]:
            raise refuse("line 1", f"the columns {', '.join(missing)} are missing", f"give a log of the form {self.name}")
        source.origin, source.shares, source.researchers = self.origin or 0, self.shares, self.researchers
        canonical = {name.lower(): name for name in self.columns}
        names = [canonical.get(name, name) for name in header]
        read_rows(source, ((reader.line_num, dict(zip(names, cells, strict=False))) for cells in reader if cells), self.read)
        if self.origin is None and source.rows:
            source.origin = min(row.submit for row in source.rows) // DAY * DAY


def read_rows(source: Source, records: Iterable[tuple[int, Record]], read: ReadRow) -> None:
    """Read rows into the source; those that cannot be used are counted with their line."""
    for line, record in records:
        source.num_read += 1
        try:
            source.take(read(source, record))
        except KeyError:
            source.skip("the row has too few cells", line)
        except UnusableError as reason:
            source.skip(str(reason), line)
