"""Logs taken apart and put together: the jobs of some tenants alone, and one log laid over another."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from allocator.generate.files import refuse
from allocator.generate.sources.rows import Source, SourceRow


def only_tenants(source: Source, tenants: Collection[str]) -> None:
    """Leave out the jobs of all other tenants; none named: leave everything.

    Raises
    ------
    SnapshotError
        If a tenant has no job in the log.
    """
    known = {row.tenant for row in source.rows}
    if missing := sorted(set(tenants) - known):
        remedy = f"give some of {', '.join(sorted(known))}"
        raise refuse("tenants", f"{', '.join(missing)} submitted nothing that can be used", remedy)
    if tenants:
        source.rows = [row for row in source.rows if row.tenant in tenants]


def lay_over(source: Source, second: Source) -> None:
    """Add the jobs of a second log to the first, its day 0 on the first one's day 0.

    The ids of its jobs begin with its title, so that they are nobody else's; its tenants stand beside those of the first.

    Raises
    ------
    SnapshotError
        If one of the logs says what shares its tenants have: of the others nothing comparable is known.
    """
    if source.shares or second.shares:
        raise refuse("on_top", "shares are known of one log only", "give logs whose shares follow from what was asked for")
    source.rows = sorted(
        [*source.rows, *(_moved(row, second.title, source.origin - second.origin) for row in second.rows)],
        key=lambda row: row.submit,
    )


def _moved(row: SourceRow, title: str, seconds: int) -> SourceRow:
    def named(key: str) -> str:
        return f"{title.lower().replace(' ', '-')}-{key}"

    after = None if row.after is None else named(row.after)
    return replace(row, key=named(row.key), submit=row.submit + seconds, after=after)
