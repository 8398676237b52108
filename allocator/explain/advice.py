"""The page of a workload that has not been submitted: whom it would displace, and what would make it start."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.console import RenderableType
from rich.table import Table

from allocator.explain.page import MOST_ROWS, View, add_row, as_instant, new_table, section, sentence
from allocator.explain.words import counted, duration, gpu_hours, listed


def advice_sections(view: View) -> Iterable[RenderableType]:
    """Everything below the request itself."""
    displaced = view["displaced"]
    yield from section("Displaced: worse off than without it", _displaced(displaced), displaced)
    if view["starts"] and not displaced:
        yield sentence("")
        yield sentence("Nobody is worse off than without it.")
    wish = "is charged and protected now" if view["starts"] else "starts now"
    title = f"Tried, so that it {wish}"
    yield from section(title, _advice(view["advice"], view["now"]), view["advice"])
    yield sentence("")
    yield sentence(_how(view))


def _displaced(rows: list[View]) -> Table:
    table = new_table("Workload", "GPUs", "Lost GPU-hours", "Effect")
    for row in rows[:MOST_ROWS]:
        add_row(table, row["workload"], row["gpus"], gpu_hours(row["lost_gpu_seconds"]), row["effect"])
    if len(rows) > MOST_ROWS:
        add_row(table, f"{len(rows) - MOST_ROWS} more", None, None, None)
    return table


def _advice(rows: list[View], now: int) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1), header_style="bold")
    table.add_column("Change", overflow="fold", min_width=24)
    table.add_column("Then", overflow="fold")
    for row in rows:
        for change, then in _lines(row, now):
            add_row(table, change, then)
    return table


def _lines(row: View, now: int) -> Iterator[tuple[str, str]]:
    """The best of a kind, or that nothing of it helps; pools one by one, since none is better than another."""
    kind, tried = row["kind"], row["tried"]
    best = [trial for trial in tried if trial["helps"]]
    if kind == "pool":
        yield from ((_change(kind, trial), _then(trial, now)) for trial in tried)
    elif kind in ("tasks", "min_runtime") and best:
        largest = max(best, key=lambda trial: trial["value"])
        yield _change(kind, largest), _then(largest, now)
    elif best:
        yield _change(kind, best[0]), _then(best[0], now)
    elif kind in ("tasks", "min_runtime"):
        least = min(tried, key=lambda trial: trial["value"])
        yield f"even {_change(kind, least)}", _then(least, now)
    else:
        yield _change(kind, tried[-1]), _then(tried[-1], now)


def _change(kind: str, trial: View) -> str:
    value = trial["value"]
    match kind:
        case "tasks":
            return f"{counted(value, 'task')} ({counted(trial['gpus'], 'GPU')})"
        case "pool":
            return f"pool {value}"
        case "level":
            return "no required level" if value is None else f"inside one {value}"
        case "segment":
            return "no segments"
        case "min_runtime":
            return f"min runtime {duration(value)}"
    return "min runtime 0 (free of charge, not protected)"


def _then(trial: View, now: int) -> str:
    if not trial["starts"]:
        if trial["never"]:
            return f"never starts: {trial['reason']}"
        when = as_instant(trial["not_before"], now)
        return f"waits: {trial['reason']}" + (f", not before {when}" if when not in (None, "any time") else "")
    kind = "starts charged" if trial["charged"] else "starts free of charge"
    rows = trial["displaced"]
    lost = gpu_hours(sum(row["lost_gpu_seconds"] for row in rows))
    whom = f"displaces {listed([row['workload'] for row in rows])}, {lost} GPU-hours lost" if rows else "displaces nobody"
    return f"{kind}, {whom}"


def _how(view: View) -> str:
    """What the answer rests on, and what it leaves open."""
    parts = [f"Found by {counted(view['calls'], 'decision')} of {view['engine']}: without it, as asked"]
    kinds = [row["kind"] for row in view["advice"]]
    parts[0] += f", and with one change at a time ({', '.join(kinds)}). Changes together were not tried." if kinds else "."
    if {"tasks", "min_runtime"} & set(kinds):
        parts.append("Tasks and whole minutes were halved: where one helps, the next larger does not.")
    if view["agrees_with_decision"] is False:
        parts.append(
            "The decision given moves other work than this engine without the request; displaced is what this engine changes."
        )
    return " ".join(parts)
