"""Views as text: tables of at most 100 columns, without lines or colours where there is no terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from io import StringIO
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table

from allocator.explain.advice import advice_sections
from allocator.explain.page import (
    MOST_ROWS,
    View,
    add_row,
    as_hours,
    as_instant,
    as_percent,
    as_promise,
    heading,
    indented_id,
    named_values,
    new_table,
    section,
    sentence,
    warning_section,
)
from allocator.explain.words import clock, counted, duration, gpu_hours, listed

WIDTH = 100


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
    yield heading(f"Epoch of {clock(view['now'])}")
    yield named_values(
        {
            "starts": _started(view["starts"]),
            "stops": f"{_sum(stops)}, throwing away {gpu_hours(sum(row['lost_gpu_seconds'] for row in stops))} GPU-hours",
            "promoted": _sum([view["promotions"]]),
            "waits": _sum(waiting),
        }
    )
    yield sentence(_answered(view["solver"]))
    yield from _pools(view["pools"])
    yield from section("Stops", _stops(stops), stops)
    yield from section("Broken promises", _broken(view["contract_broken"]), view["contract_broken"])
    yield from section("What waits, and why", _waiting(waiting, view["now"]), waiting)
    yield from _allocations(view["allocations"])
    yield from section("Drains", _drains(view["drains"]), view["drains"])
    yield from warning_section(view["warnings"])


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
    table = new_table("Pool", "Installed", "Schedulable", "Used before", "Used after")
    for row in pools:
        add_row(table, row["pool"], row["installed_gpus"], row["schedulable_gpus"], row["used_before"], row["used_after"])
    yield from section("GPUs", table, pools)


def _stops(stops: Sequence[View]) -> Table:
    table = new_table("Reason", "Workloads", "GPUs", "Lost GPU-hours")
    for row in stops:
        add_row(table, row["reason"], row["workloads"], row["gpus"], gpu_hours(row["lost_gpu_seconds"]))
    return table


def _broken(rows: Sequence[View]) -> Table:
    table = new_table("Workload", "Promised until", "Cause")
    for row in rows[:MOST_ROWS]:
        add_row(table, row["workload"], clock(row["promised"]), row["cause"])
    return table


def _waiting(rows: Sequence[View], now: int) -> Table:
    table = new_table("Reason", "Workloads", "GPUs", "Longest waiting", "For", "First not before")
    for row in rows:
        waits = None if row["waits_since"] is None else duration(max(0, now - row["waits_since"]))
        add_row(table, row["reason"], row["workloads"], row["gpus"], row["oldest"], waits, as_instant(row["not_before"], now))
    return table


def _allocations(rows: Sequence[View]) -> Iterable[RenderableType]:
    busy = [row for row in rows if row["gpus_before"] or row["gpus_after"] or row["entitled_gpus"] or row["usage_gpu_seconds"]]
    shown = [row for row in _in_tree_order(busy) if row["depth"] <= 1][:MOST_ROWS]
    table = new_table("Allocation", "Pool", "Share", "Budget GPU-h", "Used GPU-h", "Entitled", "Before", "After")
    for row in shown:
        add_row(
            table, indented_id(row), row["pool"], as_percent(row["share"]), as_hours(row["budget_gpu_seconds"]),
            as_hours(row["usage_gpu_seconds"]), f"{row['entitled_gpus']:,.1f}", row["gpus_before"], row["gpus_after"],
        )  # fmt: skip
    yield from section("Allocations (GPUs owed, held before and after)", table, shown)
    if len(shown) < len(busy):
        yield sentence(f"{len(busy) - len(shown)} more below them or idle: --allocation ID shows one.")


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
    table = new_table("Node", "Empty", "Free at", "Waits for")
    for row in rows[:MOST_ROWS]:
        free_at = None if row["free_at"] is None else clock(row["free_at"])
        add_row(table, row["node"], "yes" if row["drained"] else "no", free_at, listed(row["waits_for"]) or None)
    return table


# --- one workload --------------------------------------------------------------------------------------------------------


def _workload(view: View) -> Iterable[RenderableType]:
    now, waiting = view["now"], view["waiting"]
    yield heading(f"{view['id']} {view['state']} ({clock(now)})")
    if "asks" in view:
        has_place = view["state"] in ("runs", "stops") and (view.get("run") or {"charged": True})["charged"]
        claims = {} if has_place else _claim_pairs(view["facts"])
        yield named_values(_request_pairs(view["asks"], view["facts"], now) | claims)
    if view.get("run"):
        yield from section("Runs", named_values(_run_pairs(view["run"], now)), [view["run"]])
    if view.get("stopped"):
        yield from section("Stopped", named_values(_stop_pairs(view["stopped"])), [view["stopped"]])
    if waiting is not None:
        yield from section(f"Waits: {waiting['reason']}", named_values(_waiting_pairs(waiting, now)), [waiting])
    if view.get("makes_room"):
        yield from section("Stopped for its sake", sentence(listed(view["makes_room"], 20)), view["makes_room"])
    if view.get("path"):
        table = new_table("Allocation", "Pool", "Owed", "Entitled", "Holds charged", "Left GPU-h")
        for row in view["path"]:
            add_row(
                table, row["id"], row["pool"], f"{row['owed_gpus']:,.1f}", f"{row['entitled_gpus']:,.1f}",
                row["charged_gpus"], as_hours(row["left_gpu_seconds"]),
            )  # fmt: skip
        yield from section("Claims and funds, from its allocation up", table, view["path"])


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
        "stopped before": _stopped_before(asks["preempted"], assured=facts["assured"]),
    }


def _stopped_before(times: int, *, assured: bool) -> str:
    if not times:
        return "never"
    return f"{times} times" + (", so it is assured: its promise asks for no funds" if assured else "")


def _claim_pairs(facts: View) -> dict[str, object]:
    """Whether it has a claim to GPUs that others use. Charged work that runs needs none."""
    if not facts["promise"]:
        return {"entitled": "no; it declares no min runtime"}
    demand = "" if facts["counts_in_demand"] else "; not in the funded demand"
    return {"entitled": ("yes" if facts["entitled"] else "no") + demand}


def _run_pairs(run: View, now: int) -> dict[str, object]:
    nodes = [f"{name} ({tasks})" for name, tasks in run["placement"].items()]
    return {
        "since": None if run["since"] is None else clock(run["since"]),
        "nodes (tasks)": listed(nodes, 8),
        "charged": "yes" if run["charged"] else "no: free of charge, gives way to any claim",
        "protected until": as_promise(run["protected_until"], now),
    }


def _stop_pairs(stop: View) -> dict[str, object]:
    return {
        "reason": stop["reason"],
        "for": listed(stop["beneficiaries"], 8) or None,
        "loses": f"{gpu_hours(stop['lost_gpu_seconds'])} GPU-hours",
        "stops by": clock(stop["stop_by"]),
    }


def _waiting_pairs(row: View, now: int) -> dict[str, object]:
    soonest = "never, as it is" if row["never"] else as_instant(row["not_before"], now) or "cannot be said"
    return {
        "because": row["detail"],
        "not before": soonest,
        "in the way": listed(row["blockers"], 10) or None,
        "entitled since": None if row["entitled_since"] is None else clock(row["entitled_since"]),
        "forecast": None if row["eta"] is None else f"entitled about {clock(row['eta'])}",
    }


def _what_if(view: View) -> Iterable[RenderableType]:
    waiting = view["request"]["waiting"]
    fate = "start" if view["starts"] else "never start" if waiting and waiting["never"] else "wait"
    yield heading(f"If {view['id']} were submitted now, it would {fate}")
    yield from _workload(view["request"])
    yield from advice_sections(view)


# --- one allocation ------------------------------------------------------------------------------------------------------


def _allocation(view: View) -> Iterable[RenderableType]:
    name = f" ({view['name']})" if view["name"] else ""
    yield heading(f"{' / '.join(view['path'])}{name} ({clock(view['now'])})")
    if view["children"]:
        yield sentence(f"Above {listed(view['children'], 10)}.")
    table = new_table("Pool", "Share", "Budget GPU-h", "Used", "Promised", "Balance", "Owed", "Entitled", "Before", "After")
    for row in view["pools"]:
        add_row(
            table, row["pool"], as_percent(row["share"]), as_hours(row["budget_gpu_seconds"]),
            as_hours(row["usage_gpu_seconds"]), as_hours(row["promised_gpu_seconds"]), as_hours(row["balance_gpu_seconds"]),
            f"{row['owed_gpus']:,.1f}", f"{row['entitled_gpus']:,.1f}", row["gpus_before"], row["gpus_after"],
        )  # fmt: skip
    yield from section("Budget and claims", table, view["pools"])
    work = new_table("Work", "Workloads", "GPUs", "Largest")
    for noun, key in (("runs on", "runs"), ("of these promoted", "promoted"), ("starts", "starts"), ("stops", "stops")):
        row = view[key]
        largest = [f"{one['id']} ({one['gpus']})" for one in row["largest"]]
        add_row(work, noun, row["workloads"], row["gpus"], listed(largest, of=row["workloads"]))
    yield from section("Work", work, [work])
    yield from section("What waits, and why", _waiting(view["waiting"], view["now"]), view["waiting"])


# --- budgets -------------------------------------------------------------------------------------------------------------


def _budgets(view: View) -> Iterable[RenderableType]:
    yield heading(f"Budgets ({clock(view['now'])}; amounts in GPU-hours)")
    for pool in view["pools"]:
        rows = [row for row in view["rows"] if row["pool"] == pool["pool"]]
        table = new_table(
            "Allocation", "Share", "per day", "Budget", "Used", "Promised", "Balance", "Entitled", "Holds", "Wants"
        )
        for row in rows:
            add_row(
                table, indented_id(row), as_percent(row["share"]), f"{row['gpu_hours_per_day']:,.0f}",
                as_hours(row["budget_gpu_seconds"]), as_hours(row["usage_gpu_seconds"]), as_hours(row["promised_gpu_seconds"]),
                as_hours(row["balance_gpu_seconds"]), f"{row['entitled_gpus']:,.1f}", row["charged_gpus"], row["demand_gpus"],
            )  # fmt: skip
        yield from section(_pool_title(pool), table, rows)
    yield from warning_section(view["warnings"])


def _try(view: View) -> Iterable[RenderableType]:
    now, effective = view["now"], view["effective"]
    yield heading(f"Budgets before and after ({clock(now)}; amounts in GPU-hours)")
    when = "at once" if effective is None or effective <= now else f"{clock(effective)} (in {duration(effective - now)})"
    yield sentence(f"{view['author']}: {view['reason']}. Takes effect {when}; shown as if it were in effect now.")
    for pool in view["pools"]:
        rows = [row for row in view["rows"] if row["pool"] == pool["pool"]]
        changed = [row for row in rows if row["change"] != "same"]
        table = new_table("Allocation", "Share", "per day", "Balance", "Entitled")
        for row in changed:
            pairs = [
                _pair(row, "share", as_percent), _pair(row, "gpu_hours_per_day", lambda value: f"{value:,.0f}"),
                _pair(row, "balance_gpu_seconds", as_hours),
                _pair(row, "entitled_gpus", lambda value: f"{value:,.1f}"),
            ]  # fmt: skip
            add_row(table, indented_id(row) + ("" if row["change"] == "changed" else f" ({row['change']})"), *pairs)
        yield from section(_pool_title(pool), table, changed)
        if len(changed) < len(rows):
            yield sentence(f"{len(rows) - len(changed)} of {len(rows)} allocations stay as they are.")
    before, after = view["funded"]["before"], view["funded"]["after"]
    yield sentence(
        f"Of what waits for a promise, {before['workloads']} of {before['of_workloads']} workloads ({before['gpus']} GPUs) are "
        f"funded; afterwards {after['workloads']} of {after['of_workloads']} ({after['gpus']} GPUs)."
    )
    if view["cannot_be_decided"]:
        yield sentence(f"Can no longer be decided: {listed(view['cannot_be_decided'], 10)}.")
    yield from warning_section([warning for warning in view["warnings"] if warning not in view["warnings_before"]])


def _pool_title(pool: View) -> str:
    return f"{pool['pool']}: {pool['installed_gpus']:,d} GPUs installed, {pool['schedulable_gpus']:,d} schedulable"


def _pair(row: Mapping[str, Any], field: str, shown: Callable[[Any], str | None]) -> str:
    """A number before and after, once if it stays."""
    sides: list[str] = ["-" if row[side] is None else shown(row[side][field]) or "-" for side in ("before", "after")]
    return sides[0] if sides[0] == sides[1] else " -> ".join(sides)


_VIEWS: Mapping[str, Callable[[View], Iterable[RenderableType]]] = {
    "epoch": _epoch,
    "workload": _workload,
    "what_if": _what_if,
    "allocation": _allocation,
    "budgets": _budgets,
    "budgets_try": _try,
}
