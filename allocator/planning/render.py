"""A plan as text: tables of at most 100 columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from io import StringIO
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table

from allocator.explain.page import add_row, heading, named_values, new_table, section, sentence
from allocator.explain.words import counted

View = Mapping[str, Any]
WIDTH = 100


def as_text(view: View) -> str:
    """A plan as plain text."""
    out = StringIO()
    Console(file=out, width=WIDTH, color_system=None, force_terminal=False).print(render(view))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def render(view: View) -> RenderableType:
    """A plan as something a rich console prints."""
    return Group(*_parts(view))


def _parts(view: View) -> Iterable[RenderableType]:
    yield heading(view["title"])
    yield named_values(_summary(view))
    if "orders" in view:
        yield from section("Orders", _orders(view["orders"], view["currency"]), view["orders"])
        yield from section("Fleet: GPUs in service (needed)", _fleet(view), view["fleet"])
        yield from section("Delivered share of what is owed, as promised", _delivered(view["delivered"]), view["delivered"])
    missing = view.get("missing", ())
    yield from section("What is missing, if as little as possible is", _missing(missing), missing)
    played = view.get("replay", {"rows": ()})["rows"]
    yield from section("Replayed", _replayed(played), played)
    if played:
        yield sentence(_how(view["replay"]))


def _how(replay: View) -> str:
    """How it was replayed, and how far the replay is from the plan."""
    apart = max(abs(row["difference"]) for row in replay["rows"])
    size = f"at most {replay['gpus']:,d} GPUs of each pool, {replay['hours']:,d} h, {counted(replay['draws'], 'draw')} of jobs"
    if replay["failures"]:
        size += f", {replay['failures']:g} node failures per GPU and day"
    return f"{replay['policy']}, {size}; largest difference {100 * apart:.1f} points"


def _summary(view: View) -> dict[str, str]:
    found = {"answer": view["status"] + (f": {view['note']}" if view["note"] else "")}
    if view["cost"] is not None:
        gap = "no bound" if view["gap"] is None else f"at most {100 * view['gap']:.2f} % above the least"
        found["cost"] = f"{view['cost']:,d} {view['currency']}, discounted; {gap}"
    if "orders" in view:
        found["course"] = view["course"]
        met = len(view["scenarios_met"])
        found["scenarios"] = f"{met} of {view['scenarios']} met, {view['scenarios_required']} required"
    return found


def _orders(rows: Sequence[View], currency: str) -> Table:
    table = new_table("Unit", "Quarter", "In service", "Units", "GPUs", f"Price, {currency}")
    for row in rows:
        cells = (row["quarter"], row["in_service"], f"{row['units']:,d}", f"{row['gpus']:,d}", f"{row['price']:,d}")
        add_row(table, row["unit"], *cells)
    return table


def _fleet(view: View) -> Table:
    """One row a quarter; needs in brackets."""
    rows = view["fleet"]
    pools, resources = list(rows[0]["gpus"]), list(rows[0]["used"])
    table = new_table("Quarter", *pools, *resources)
    for row in rows:
        gpus = [f"{row['gpus'][pool]:,d} ({row['needed'][pool]:,d})" for pool in pools]
        add_row(table, row["quarter"], *gpus, *(f"{row['used'][name]:,.0f}" for name in resources))
    return table


def _delivered(rows: Sequence[View]) -> Table:
    table = new_table("Project", "pool", "required", "lowest", "quarter", "scenario", "mean")
    for row in rows:
        shares = (_percent(row["required"]), _percent(row["lowest"]), row["quarter"], row["scenario"], _percent(row["mean"]))
        add_row(table, row["project"], row["pool"], *shares)
    return table


def _missing(rows: Sequence[View]) -> Table:
    table = new_table("Project", "quarter", "pool", "GPUs short", "required", "reached", "Cause")
    for row in rows:
        cells = (f"{row['short']:,d} of {row['needed']:,d}", _percent(row["required"]), _percent(row["reached"]), row["cause"])
        add_row(table, row["project"], row["quarter"], row["pool"], *cells)
    return table


def _replayed(rows: Sequence[View]) -> Table:
    table = new_table("Project", "pool", "quarter", "scenario", "GPUs owed", "promised", "replayed", "points")
    for row in rows:
        shares = (
            f"{row['owed']:,.1f}",
            _percent(row["promised"]),
            _percent(row["replayed"]),
            f"{100 * row['difference']:+.1f}",
        )
        add_row(table, row["project"], row["pool"], row["quarter"], row["scenario"], *shares)
    return table


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
