"""`allocator verify`: whether a decision keeps every rule, and what it scores."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

from allocator.cli.documents import AsJson, DecisionFile, SnapshotFile, read_pair, write_json, write_lines
from allocator.cli.status import DONE, NO

if TYPE_CHECKING:
    from allocator.verify import Verdict

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def verify(snapshot: SnapshotFile, decision: DecisionFile, as_json: AsJson = False) -> None:
    """Check a decision against every rule.

    Reads nothing but the two documents, and recomputes the score. Exit status 0 if all rules are kept, 1 if not.
    """
    found, decided = read_pair(snapshot, decision)
    from allocator.verify import verify as check

    verdict = check(found, decided)
    if as_json:
        write_json(verdict.as_dict())
    else:
        write_lines(list(_lines(verdict)))
    raise typer.Exit(DONE if verdict.ok else NO)


def _lines(verdict: Verdict) -> Iterator[str]:
    """Every broken rule, or the score by term in GPU-seconds."""
    if not verdict.ok:
        yield from map(str, verdict.violations)
        yield f"{len(verdict.violations)} violations of {len(verdict.broken)} rules: {', '.join(verdict.broken)}"
        return
    yield "all rules are kept"
    yield f"{'score':14} {verdict.score.total / 1000:18,.3f} GPU-seconds"
    for name, value in verdict.score.as_dict().items():
        yield f"  {name:12} {value / 1000:18,.3f}"
