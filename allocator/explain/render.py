"""Views as text: tables of at most 100 columns, without lines or colours where there is no terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from io import StringIO
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from allocator.explain.words import clock, counted, duration, gpu_hours, listed

WIDTH = 100
MOST_ROWS = 40

View = Mapping[str, Any]


def as_text(view: View, width: int = WIDTH) -> str:
    """A view as plain text."""
    out = StringIO()
    Console(file=out, width=width, color_system=None, force_terminal=False).print(render(view))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def render(view: View) -> RenderableType:
    """A view as something a rich console prints."""
    return Group(*_VIEWS[view["view"]](view))


# --- the epoch -----------------------------------------------------------------------------------------------------------


def _epoch(view: View) -> Iterable[RenderableType]:
    stops, waiting = view["stops"], view["waiting"]
    yield _heading(f"Epoch of {clock(view['now'])}")
    yield _pairs(
        {
            "starts": _started(view["starts"]),
            "stops": f"{_sum(stops)}, throwing away {gpu_hours(sum(row['lost_gpu_seconds'] for row in stops))} GPU-hours",
            "promoted": _sum([view["promotions"]]),
            "waits": _sum(waiting),
        }
    )
    yield _line(_answered(view["solver"]))
    yield from _pools(view["pools"])
    yield from _section("Stops", _stops(stops), stops)
    yield from _section("Broken promises", _broken(view["contract_broken"]), view["contract_broken"])
    yield from _section("What waits, and why", _waiting(waiting, view["now"]), waiting)
    yield from _allocations(view["allocations"])
    yield from _section("Drains", _drains(view["drains"]), view["drains"])
    yield from _warnings(view["warnings"])


def _sum(rows: Sequence[View]) -> str:
    """How much that is together."""
    workloads, gpus = sum(row["workloads"] for row in rows), sum(row["gpus"] for row in rows)
    return f"{counted(workloads, 'workload')} on {counted(gpus, 'GPU')}"


def _started(starts: View) -> str:
    free = starts["gpus"] - starts["charged_gpus"]
    kinds = f"{starts['charged_gpus']:,d} charged, {free:,d} free of charge; {starts['express']} in the express lane"
    return f"{_sum([starts])}: {kinds}"


def _answered(solver: View) -> str:
    gap = "no bound" if solver["gap"] is None else f"gap {100 * solver['gap']:.2f} %"
    terms = {name: value for name, value in solver["terms_gpu_seconds"].items() if value}
    parts = ", ".join(f"{name} {value / 3600:,.1f}" for name, value in terms.items())
    notes = "".join(f" {note}." for note in solver["notes"])
    cost = f"Cost {solver['objective_gpu_seconds'] / 3600:,.1f} GPU-hours" + (f": {parts}." if parts else ".")
    return f"Answered by {solver['engine']} (rung {solver['rung']}, {solver['status']}, {gap}).{notes} {cost}"


def _pools(pools: Sequence[View]) -> Iterable[RenderableType]:
    table = _table("Pool", "Installed", "Schedulable", "Used before", "Used after")
    for row in pools:
        _add(table, row["pool"], row["installed_gpus"], row["schedulable_gpus"], row["used_before"], row["used_after"])
    yield from _section("GPUs", table, pools)


def _stops(stops: Sequence[View]) -> Table:
    table = _table("Reason", "Workloads", "GPUs", "Lost GPU-hours")
    for row in stops:
        _add(table, row["reason"], row["workloads"], row["gpus"], gpu_hours(row["lost_gpu_seconds"]))
    return table


def _broken(rows: Sequence[View]) -> Table:
    table = _table("Workload", "Promised until", "Cause")
    for row in rows[:MOST_ROWS]:
        _add(table, row["workload"], clock(row["promised"]), row["cause"])
    return table


def _waiting(rows: Sequence[View], now: int) -> Table:
    table = _table("Reason", "Workloads", "GPUs", "Longest waiting", "For", "First not before")
    for row in rows:
        waits = None if row["waits_since"] is None else duration(max(0, now - row["waits_since"]))
        _add(table, row["reason"], row["workloads"], row["gpus"], row["oldest"], waits, _instant(row["not_before"], now))
    return table


def _allocations(rows: Sequence[View]) -> Iterable[RenderableType]:
    busy = [row for row in rows if row["gpus_before"] or row["gpus_after"] or row["entitled_gpus"] or row["usage_gpu_seconds"]]
    shown = [row for row in _in_tree_order(busy) if row["depth"] <= 1][:MOST_ROWS]
    table = _table("Allocation", "Pool", "Share", "Budget GPU-h", "Used GPU-h", "Entitled", "Before", "After")
    for row in shown:
        _add(
            table, _indented(row), row["pool"], _percent(row["share"]), _hours(row["budget_gpu_seconds"]),
            _hours(row["usage_gpu_seconds"]), f"{row['entitled_gpus']:,.1f}", row["gpus_before"], row["gpus_after"],
        )  # fmt: skip
    yield from _section("Allocations (GPUs owed, held before and after)", table, shown)
    if len(shown) < len(busy):
        yield _line(f"{len(busy) - len(shown)} more below them or idle: --allocation ID shows one.")


def _in_tree_order(rows: Sequence[View]) -> Sequence[View]:
    """Each allocation before those below it; rows of one allocation stay together."""
    below: dict[str | None, list[View]] = {}
    known = {row["id"] for row in rows}
    for row in rows:
        below.setdefault(row["parent"] if row["parent"] in known else None, []).append(row)
    found, stack, seen = [], list(reversed(below.get(None, []))), set[tuple[str, str]]()
    while stack:
        row = stack.pop()
        if (row["id"], row["pool"]) in seen:
            continue
        same = [other for other in below[row["parent"] if row["parent"] in known else None] if other["id"] == row["id"]]
        found += same
        seen |= {(other["id"], other["pool"]) for other in same}
        stack.extend(reversed(below.get(row["id"], [])))
    return found


def _drains(rows: Sequence[View]) -> Table:
    table = _table("Node", "Empty", "Free at", "Waits for")
    for row in rows[:MOST_ROWS]:
        free_at = None if row["free_at"] is None else clock(row["free_at"])
        _add(table, row["node"], "yes" if row["drained"] else "no", free_at, listed(row["waits_for"]))
    return table


# --- one workload --------------------------------------------------------------------------------------------------------


def _workload(view: View) -> Iterable[RenderableType]:
    now, waiting = view["now"], view["waiting"]
    yield _heading(f"{view['id']} {view['state']} ({clock(now)})")
    if "asks" in view:
        yield _pairs(_request_pairs(view["asks"], view["facts"], now))
    if view.get("run"):
        yield from _section("Runs", _pairs(_run_pairs(view["run"], now)), [view["run"]])
    if view.get("stopped"):
        yield from _section("Stopped", _pairs(_stop_pairs(view["stopped"])), [view["stopped"]])
    if waiting is not None:
        yield from _section(f"Waits: {waiting['reason']}", _pairs(_waiting_pairs(waiting, now)), [waiting])
    if view.get("makes_room"):
        yield from _section("Stopped for its sake", _line(listed(view["makes_room"], 20)), view["makes_room"])
    if view.get("path"):
        table = _table("Allocation", "Pool", "Owed", "Entitled", "Holds charged", "Left GPU-h")
        for row in view["path"]:
            _add(
                table, row["id"], row["pool"], f"{row['owed_gpus']:,.1f}", f"{row['entitled_gpus']:,.1f}",
                row["charged_gpus"], _hours(row["left_gpu_seconds"]),
            )  # fmt: skip
        yield from _section("Claims and funds, from its allocation up", table, view["path"])


def _request_pairs(asks: View, facts: View, now: int) -> dict[str, object]:
    place = f", all inside one {asks['required']}" if asks["required"] else ""
    lane = "; express lane" if facts["express_lane"] else ""
    promise = f"{duration(facts['promise'])}, {gpu_hours(facts['cost_gpu_seconds'])} GPU-hours" if facts["promise"] else "none"
    return {
        "asks for": f"{asks['tasks']} x {asks['gpus_per_task']} GPUs = {counted(asks['gpus'], 'GPU')}{place}{lane}",
        "pools": listed(asks["pools"], 10) or "any",
        "for": asks["allocation"] + (f", user {asks['user']}" if asks["user"] else ""),
        "submitted": f"{clock(asks['submit_time'])} ({duration(max(0, now - asks['submit_time']))} ago)",
        "promise": promise,
        "entitled": ("yes" if facts["entitled"] else "no")
        + ("" if facts["counts_in_demand"] else "; not in the funded demand"),
        "stopped before": f"{asks['preempted']} times" if asks["preempted"] else "never",
    }


def _run_pairs(run: View, now: int) -> dict[str, object]:
    nodes = [f"{name} ({tasks})" for name, tasks in run["placement"].items()]
    return {
        "since": None if run["since"] is None else clock(run["since"]),
        "nodes (tasks)": listed(nodes, 8),
        "charged": "yes" if run["charged"] else "no: free of charge, gives way to any claim",
        "protected until": _promise(run["protected_until"], now),
    }


def _stop_pairs(stop: View) -> dict[str, object]:
    return {
        "reason": stop["reason"],
        "for": listed(stop["beneficiaries"], 8) or None,
        "loses": f"{gpu_hours(stop['lost_gpu_seconds'])} GPU-hours",
        "stops by": clock(stop["stop_by"]),
    }


def _waiting_pairs(row: View, now: int) -> dict[str, object]:
    soonest = "never, as it is" if row["never"] else _instant(row["not_before"], now) or "cannot be said"
    return {
        "because": row["detail"],
        "not before": soonest,
        "in the way": listed(row["blockers"], 10) or None,
        "entitled since": None if row["entitled_since"] is None else clock(row["entitled_since"]),
        "forecast": None if row["eta"] is None else clock(row["eta"]),
    }


# --- one allocation ------------------------------------------------------------------------------------------------------


def _allocation(view: View) -> Iterable[RenderableType]:
    name = f" ({view['name']})" if view["name"] else ""
    yield _heading(f"{' / '.join(view['path'])}{name} ({clock(view['now'])})")
    if view["children"]:
        yield _line(f"Above {listed(view['children'], 10)}.")
    table = _table("Pool", "Share", "Budget GPU-h", "Used", "Promised", "Balance", "Owed", "Entitled", "Before", "After")
    for row in view["pools"]:
        _add(
            table, row["pool"], _percent(row["share"]), _hours(row["budget_gpu_seconds"]), _hours(row["usage_gpu_seconds"]),
            _hours(row["promised_gpu_seconds"]), _hours(row["balance_gpu_seconds"]), f"{row['owed_gpus']:,.1f}",
            f"{row['entitled_gpus']:,.1f}", row["gpus_before"], row["gpus_after"],
        )  # fmt: skip
    yield from _section("Budget and claims", table, view["pools"])
    work = _table("Work", "Workloads", "GPUs", "Largest")
    for noun, key in (("runs on", "runs"), ("of these promoted", "promoted"), ("starts", "starts"), ("stops", "stops")):
        row = view[key]
        largest = [f"{one['id']} ({one['gpus']})" for one in row["largest"]]
        _add(work, noun, row["workloads"], row["gpus"], listed(largest, of=row["workloads"]))
    yield from _section("Work", work, [work])
    yield from _section("What waits, and why", _waiting(view["waiting"], view["now"]), view["waiting"])


# --- budgets -------------------------------------------------------------------------------------------------------------


def _budgets(view: View) -> Iterable[RenderableType]:
    yield _heading(f"Budgets ({clock(view['now'])}; amounts in GPU-hours)")
    for pool in view["pools"]:
        rows = [row for row in view["rows"] if row["pool"] == pool["pool"]]
        table = _table("Allocation", "Share", "per day", "Budget", "Used", "Promised", "Balance", "Entitled", "Holds", "Wants")
        for row in rows:
            _add(
                table, _indented(row), _percent(row["share"]), f"{row['gpu_hours_per_day']:,.0f}",
                _hours(row["budget_gpu_seconds"]), _hours(row["usage_gpu_seconds"]), _hours(row["promised_gpu_seconds"]),
                _hours(row["balance_gpu_seconds"]), f"{row['entitled_gpus']:,.1f}", row["charged_gpus"], row["demand_gpus"],
            )  # fmt: skip
        yield from _section(_pool_title(pool), table, rows)
    yield from _warnings(view["warnings"])


def _try(view: View) -> Iterable[RenderableType]:
    now, effective = view["now"], view["effective"]
    yield _heading(f"Budgets before and after ({clock(now)}; amounts in GPU-hours)")
    when = "at once" if effective is None or effective <= now else f"{clock(effective)} (in {duration(effective - now)})"
    yield _line(f"{view['author']}: {view['reason']}. Takes effect {when}; shown as if it were in effect now.")
    for pool in view["pools"]:
        rows = [row for row in view["rows"] if row["pool"] == pool["pool"]]
        changed = [row for row in rows if row["change"] != "same"]
        table = _table("Allocation", "Share", "per day", "Balance", "Entitled")
        for row in changed:
            pairs = [
                _pair(row, "share", _percent), _pair(row, "gpu_hours_per_day", lambda value: f"{value:,.0f}"),
                _pair(row, "balance_gpu_seconds", _hours),
                _pair(row, "entitled_gpus", lambda value: f"{value:,.1f}"),
            ]  # fmt: skip
            _add(table, _indented(row) + ("" if row["change"] == "changed" else f" ({row['change']})"), *pairs)
        yield from _section(_pool_title(pool), table, changed)
        yield _line(f"{len(rows) - len(changed)} of {len(rows)} allocations stay as they are.")
    before, after = view["funded"]["before"], view["funded"]["after"]
    yield _line(
        f"Of what waits for a promise, {before['workloads']} of {before['of_workloads']} workloads ({before['gpus']} GPUs) are "
        f"funded; afterwards {after['workloads']} of {after['of_workloads']} ({after['gpus']} GPUs)."
    )
    if view["cannot_be_decided"]:
        yield _line(f"Can no longer be decided: {listed(view['cannot_be_decided'], 10)}.")
    yield from _warnings([warning for warning in view["warnings"] if warning not in view["warnings_before"]])


def _pool_title(pool: View) -> str:
    return f"{pool['pool']}: {pool['installed_gpus']:,d} GPUs installed, {pool['schedulable_gpus']:,d} schedulable"


def _pair(row: Mapping[str, Any], field: str, shown: Callable[[Any], str | None]) -> str:
    """A number before and after, once if it stays."""
    sides: list[str] = ["-" if row[side] is None else shown(row[side][field]) or "-" for side in ("before", "after")]
    return sides[0] if sides[0] == sides[1] else " -> ".join(sides)


# --- small parts ---------------------------------------------------------------------------------------------------------


def _heading(text: str) -> Text:
    return Text(text, style="bold")


def _line(text: str) -> Text:
    return Text(text)


def _section(title: str, body: RenderableType, rows: Sequence[object]) -> Iterable[RenderableType]:
    """A title and its body, nothing where there are no rows."""
    if rows:
        yield Text()
        yield _heading(title)
        yield body


def _warnings(warnings: Sequence[str]) -> Iterable[RenderableType]:
    table = Table.grid(padding=(0, 1))
    for warning in warnings[:MOST_ROWS]:
        table.add_row(Text("-"), Text(warning))
    if len(warnings) > MOST_ROWS:
        table.add_row(Text("-"), Text(f"{len(warnings) - MOST_ROWS} more"))
    yield from _section("Warnings", table, warnings)


def _table(first: str, *others: str) -> Table:
    """A table whose first column is text and whose others are numbers or short."""
    table = Table(box=None, pad_edge=False, padding=(0, 1), header_style="bold")
    table.add_column(first, overflow="fold", min_width=12)
    for title in others:
        words = title in _WORDY
        table.add_column(title, justify="left" if words else "right", overflow="fold", no_wrap=not words)
    return table


_WORDY = frozenset(
    {
        "Pool",
        "Promised until",
        "Cause",
        "Longest waiting",
        "Free at",
        "Waits for",
        "For",
        "First not before",
        "Largest",
        "Empty",
        "",
    }
)


def _add(table: Table, *cells: object) -> None:
    table.add_row(*(Text("-" if cell is None else f"{cell:,d}" if type(cell) is int else str(cell)) for cell in cells))


def _pairs(pairs: Mapping[str, object]) -> Table:
    """Names and values, without those that have none."""
    table = Table.grid(padding=(0, 2))
    for name, value in pairs.items():
        if value is not None:
            table.add_row(Text(name), Text(str(value)))
    return table


def _indented(row: View) -> str:
    return f"{'  ' * row['depth']}{row['id']}"


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def _hours(gpu_seconds: int | None) -> str | None:
    """GPU-hours; whole ones where they are many."""
    if gpu_seconds is None:
        return None
    return f"{gpu_seconds / 3600:,.0f}" if abs(gpu_seconds) >= 360_000 else f"{gpu_seconds / 3600:,.1f}"


def _instant(instant: int | None, now: int) -> str | None:
    if instant is None:
        return None
    return f"{clock(instant)} (in {duration(instant - now)})" if instant > now else "any time"


def _promise(until: int | None, now: int) -> str:
    if until is None:
        return "not protected"
    return _instant(until, now) or "" if until > now else f"no longer, the promise ended {clock(until)}"


_VIEWS: Mapping[str, Callable[[View], Iterable[RenderableType]]] = {
    "epoch": _epoch,
    "workload": _workload,
    "allocation": _allocation,
    "budgets": _budgets,
    "budgets_try": _try,
}
