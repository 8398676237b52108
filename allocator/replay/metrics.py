"""The metrics of a replay, each with its definition.

Every metric is a function of the evidence and of how often each day counts, so that the same function gives the value (every
day once), its interval (days drawn at random) and the interval of a difference (the same days drawn of two replays).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from allocator.replay.evidence import Bools, Delivery, Evidence, Floats
from allocator.replay.ladder import Ladder

Value = float | None
Of = Callable[[Evidence, Floats], Value]
"""Value of a metric; the second argument says how often each day counts, shape (num_days,). None: nothing to go by."""


@dataclass(frozen=True, slots=True)
class Metric:
    """`better` is "higher", "lower", or empty where neither is. `by_day` False: it looks at the whole span, whatever days are
    drawn, and has no interval."""

    name: str
    unit: str
    better: str
    definition: str
    of: Of
    by_day: bool = True


def _ratio(part: Floats, whole: Floats, counts: Floats) -> Value:
    total = float(counts @ whole)
    return float(counts @ part) / total if total > 0 else None


def _pools(*columns: str, sign: float = 1.0, base: tuple[str, ...] = (), over: str = "share") -> Of:
    """(base + sign * columns) of all pools together as a share of one column (`share` is all that is schedulable)."""

    def value(evidence: Evidence, counts: Floats) -> Value:
        part = sum((evidence.pools[name] for name in base), np.zeros(evidence.num_days))
        part = part + sign * sum((evidence.pools[name] for name in columns), np.zeros(evidence.num_days))
        whole = evidence.pools["charged"] + evidence.pools["uncharged"] if over == "assigned" else evidence.pools[over]
        return _ratio(part, whole, counts)

    return value


def _blocks(values: Floats, counts: Floats, days: int) -> tuple[Floats, Floats]:
    """Sums over blocks of days, shape (num_blocks, num_vertices), and how often each block counts."""
    starts = np.arange(0, len(values), days)
    return np.add.reduceat(values, starts, axis=0), np.add.reduceat(counts, starts) / days


def _delivered(days: int, got: str) -> Of:
    """What was owed and got, cut at what was owed for each project in each block, over all that was owed."""

    def value(evidence: Evidence, counts: Floats) -> Value:
        table = evidence.projects
        owed, times = _blocks(table.owed, counts, days)
        met = np.minimum(_blocks(getattr(table, got), counts, days)[0], owed)
        return _ratio(met.sum(axis=1), owed.sum(axis=1), times)

    return value


def _strict(evidence: Evidence, counts: Floats) -> Value:
    table = evidence.projects
    return _ratio(table.met_charged.sum(axis=1), table.owed.sum(axis=1), counts)


def _shares(table: Delivery, got: str, counts: Floats) -> Floats:
    """Share of what was owed that each vertex got, cut at 1; of those to whom at least a GPU-hour was owed."""
    owed: Floats = counts @ table.owed
    have: Floats = counts @ getattr(table, got)
    some = owed >= 3600
    shares: Floats = np.minimum(have[some] / owed[some], 1.0)
    return shares


def _lowest(of: str, got: str) -> Of:
    def value(evidence: Evidence, counts: Floats) -> Value:
        shares = _shares(getattr(evidence, of), got, counts)
        return float(shares.min()) if len(shares) else None

    return value


def _at_least(of: str, got: str, bar: float) -> Of:
    def value(evidence: Evidence, counts: Floats) -> Value:
        shares = _shares(getattr(evidence, of), got, counts)
        return float(np.mean(shares >= bar)) if len(shares) else None

    return value


def wait_at(share: float, chosen: Callable[[Evidence], Bools] | None = None, *, queued: bool = False) -> Of:
    """The wait that so large a share of all jobs, or of the chosen ones, does not exceed."""

    def value(evidence: Evidence, counts: Floats) -> Value:
        ladders = evidence.waits.ladders
        ladder = ladders.get((chosen, queued))
        if ladder is None:
            ladder = ladders[chosen, queued] = _ladder(evidence, chosen, queued=queued)
        return ladder.quantile(counts, share)

    return value


def _ladder(evidence: Evidence, chosen: Callable[[Evidence], Bools] | None, *, queued: bool) -> Ladder:
    waits = evidence.waits
    values, day = (waits.queued if queued else waits.wait), waits.day
    if chosen is not None:
        mask = chosen(evidence)
        values, day = values[mask], day[mask]
    if queued:
        order = np.argsort(values, kind="stable")
        values, day = values[order], day[order]
    return Ladder.of(values, day, evidence.num_days)


def of_class(name: str) -> Callable[[Evidence], Bools]:
    """Jobs of one class."""
    return lambda evidence: evidence.waits.classes == name


def of_project(name: str) -> Callable[[Evidence], Bools]:
    """Jobs of one project."""
    return lambda evidence: evidence.waits.projects == name


def of_size(low: int, high: int | None) -> Callable[[Evidence], Bools]:
    """Jobs of at least `low` and at most `high` GPUs."""
    return lambda evidence: (evidence.waits.gpus >= low) & (evidence.waits.gpus <= (high or 1 << 40))


def _promised(evidence: Evidence) -> Bools:
    return evidence.waits.promised


def _large(evidence: Evidence) -> Bools:
    return evidence.waits.large


def _per_run(evidence: Evidence, counts: Floats) -> Value:
    return _ratio(evidence.spread, evidence.gangs, counts)


def _total(of: str) -> Of:
    return lambda evidence, counts: float(counts @ getattr(evidence, of))


def _stopped_over(times: int) -> Of:
    return lambda evidence, _: float((evidence.stops_of_jobs > times).sum())


def _most_stops(evidence: Evidence, _: Floats) -> Value:
    return float(evidence.stops_of_jobs.max(initial=0))


def _worst_late(evidence: Evidence, _: Floats) -> Value:
    return float(evidence.late.max(initial=0))


def _num_late(evidence: Evidence, _: Floats) -> Value:
    return float((evidence.late > 0).sum())


def _waits_of(name: str, what: str, chosen: Callable[[Evidence], Bools] | None, *shares: int) -> list[Metric]:
    return [
        Metric(
            f"{name}_p{share}",
            "s",
            "lower",
            f"{share}th percentile of the wait of {what}",
            wait_at(share / 100, chosen),
        )
        for share in shares
    ]


_OWED = "owed: hour by hour the smaller of share x schedulable GPUs and demand with a min runtime, funded or not"

_WAIT = "first start, or else the end of the replay, minus submission"

METRICS: tuple[Metric, ...] = (
    Metric("load", "", "", "demand over supply: running and waiting GPU-hours / schedulable GPU-hours",
           _pools("charged", "uncharged", "waiting")),
    Metric("occupancy", "", "higher", "assigned / schedulable GPU-hours", _pools("charged", "uncharged")),
    Metric("goodput", "", "higher", "occupancy less lost work, restarts, checkpoints, and time on dead nodes",
           _pools("lost", "restart", "checkpoint", "dead", sign=-1.0, base=("charged", "uncharged"))),
    Metric("unallocated", "", "", "uncharged / assigned GPU-hours", _pools("uncharged", over="assigned")),
    Metric("unfunded", "", "lower", "uncharged GPU-hours of work with a min runtime / assigned GPU-hours",
           _pools("unfunded", over="assigned")),
    Metric("lost", "", "lower", "lost work and restarts / assigned GPU-hours", _pools("lost", "restart", over="assigned")),
    Metric("slow", "", "lower", "lost to spread over more domains than needed / assigned GPU-hours",
           _pools("slow", over="assigned")),
    Metric("parked", "", "lower", "held by sessions that have done their work / assigned GPU-hours",
           _pools("parked", over="assigned")),
    Metric("delivered_7d", "", "higher", f"charged / owed GPU-hours, cut at 1 for each project in blocks of 7 days ({_OWED})",
           _delivered(7, "charged")),
    Metric("delivered_1d", "", "higher", "the same in blocks of a day", _delivered(1, "charged")),
    Metric("delivered_strict", "", "higher", "the same cut hour by hour and pool by pool", _strict),
    Metric("delivered_lowest", "", "higher", "the lowest project: charged / owed over the whole span, cut at 1",
           _lowest("projects", "charged")),
    Metric("delivered_lowest_pool", "", "higher", "the lowest project in a pool, likewise",
           _lowest("project_pools", "charged")),
    Metric("delivered_at_95", "", "higher", "share of projects that got at least 95 % of what they were owed",
           _at_least("projects", "charged", 0.95)),
    Metric("delivered_at_95_pool", "", "higher", "share of projects and pools that did",
           _at_least("project_pools", "charged", 0.95)),
    Metric("useful", "", "higher", "GPU-hours of any kind less lost work, restarts, checkpoints, parked and dead time / owed, "
           "cut at 1 for each project in blocks of 7 days: fair to every policy", _delivered(7, "useful")),
    Metric("useful_lowest", "", "higher", "the lowest project over the whole span", _lowest("projects", "useful")),
    Metric("useful_lowest_pool", "", "higher", "the lowest project in a pool", _lowest("project_pools", "useful")),
    *_waits_of("wait", f"all work ({_WAIT})", None, 50, 90, 99),
    *_waits_of("wait_promised", "work with a min runtime", _promised, 50, 90, 99),
    *_waits_of("wait_debug", "class debug", of_class("debug"), 50, 90),
    *_waits_of("wait_eval", "class eval", of_class("eval"), 50, 90),
    *_waits_of("wait_large", "gangs large enough for a reservation", _large, 50, 90, 100),
    Metric("queued_p90", "s", "lower", "90th percentile of all time in the queue, over all requeues",
           wait_at(0.9, queued=True)),
    Metric("stops", "", "lower", "stops by decision or by hand", _total("stops")),
    Metric("stops_max", "", "lower", "most stops of one job", _most_stops, False),
    Metric("stopped_over_8", "", "lower", "jobs stopped more than 8 times", _stopped_over(8), False),
    Metric("stopped_over_20", "", "lower", "jobs stopped more than 20 times", _stopped_over(20), False),
    Metric("promises_broken", "", "lower", "runs ended before their promise by anything but themselves", _total("broken")),
    Metric("drains_by_hand", "", "lower", "nodes that a person had to clear at the deadline of a drain", _total("by_hand")),
    Metric("bound_missed", "", "lower", "large gangs that started later than their reservation stated first, dead nodes apart",
           _num_late, False),
    Metric("bound_worst", "s", "lower", "the worst of these, a tick of grace allowed", _worst_late, False),
    Metric("excess_domains", "", "lower", "domains touched beyond the fewest possible, per run on several nodes", _per_run),
)  # fmt: skip
"""In the order of reports."""

SIZES = ((1, 1), (2, 7), (8, 8), (9, 31), (32, 127), (128, None))
"""Gang sizes that waits are told by."""


def size_name(low: int, high: int | None) -> str:
    """How gangs of `low` to `high` GPUs are called."""
    return f"{low}" if low == high else f"{low}-{high}" if high else f"{low}+"


def wait_table(evidence: Evidence) -> Mapping[str, Mapping[str, Mapping[str, Value]]]:
    """Waits by class and by gang size: number, median, p90, p99, and the p90 of all time in the queue."""
    everyday = np.ones(evidence.num_days)

    def row(chosen: Callable[[Evidence], Bools]) -> dict[str, Value]:
        found: dict[str, Value] = {"jobs": float(chosen(evidence).sum())}
        found |= {f"p{share}": wait_at(share / 100, chosen)(evidence, everyday) for share in (50, 90, 99)}
        return found | {"queued_p90": wait_at(0.9, chosen, queued=True)(evidence, everyday)}

    classes = sorted({str(name) for name in evidence.waits.classes})
    sizes = {size_name(low, high): of_size(low, high) for low, high in SIZES}
    return {
        "by_class": {name: row(of_class(name)) for name in classes},
        "by_gpus": {name: row(chosen) for name, chosen in sizes.items()},
    }
