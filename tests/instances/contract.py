"""Situations of the min-runtime contract: when a promise holds, and what may end it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from allocator.domain import Run, Snapshot
from tests.builders import HOUR, NOW, budget, job, node, snapshot
from tests.instances.authored import DAY, FLAT, Authored, expect, flat, quiet, ran, record

AB = [budget("a"), budget("b")]


def _duel(since: int, *, machines: Any = None, run: Run | None = None, **policy: Any) -> Snapshot:
    """`j` has held the node for some seconds, with a min runtime of eight hours; an entitled rival waits."""
    holder = ran(job("j", "a", min_runtime=8 * HOUR), "n1", hours=since / HOUR, left=max(0, 8 - since / HOUR))
    holder = holder if run is None else replace(holder, run=run)
    past = [record("old", "a", 8, 3 * DAY, 2 * DAY)]
    works = [holder, job("rival", "b", min_runtime=8 * HOUR)]
    return snapshot(machines or flat(1), AB, works, usage=past, levels=FLAT, **policy)


def _two_halves() -> Snapshot:
    works = [ran(job(f"j{number}", "a", 4, min_runtime=8 * HOUR), f"n{number}", hours=1, left=7) for number in (1, 2)]
    return snapshot(flat(2), AB, [*works, job("rival", "b")], levels=FLAT)


def _dead() -> Snapshot:
    machines = [node("n1", domains=("c",), state="down", reason="xid 79"), node("n2", domains=("c",))]
    works = [ran(job("j", min_runtime=8 * HOUR), "n1", hours=2, left=6), job("late", min_runtime=8 * HOUR)]
    return snapshot(machines, [budget("a")], works, levels=FLAT)


def _leaving(deadline: int) -> Snapshot:
    return _duel(2 * HOUR, machines=[node("n1", domains=("c",), state="drain", drain_deadline=NOW + deadline)])


CONTRACT = [
    Authored(
        name="promise-one-second-left",
        title="A promise of eight hours has one second to go; a rival is owed the node",
        special="not one second early",
        snapshot=_duel(8 * HOUR - 1),
        expect=quiet(rival="blocked_by_protection"),
    ),
    Authored(
        name="promise-kept-to-the-second",
        title="The promise ends at this very second",
        special="not one second late either",
        snapshot=_duel(8 * HOUR),
        expect=expect(["rival"], ["j"]),
    ),
    Authored(
        name="promise-without-start-time",
        title="A charged run came without a start time",
        special="protected from now on: never silently unprotected",
        snapshot=_duel(0, run=Run(placement={"n1": 1}, charged=True)),
        expect=quiet(),
    ),
    Authored(
        name="promise-from-the-future",
        title="A run is said to start in ten minutes",
        special="protected, and has used nothing",
        snapshot=_duel(0, run=Run(placement={"n1": 1}, charged=True, start_time=NOW + 600)),
        expect=quiet(),
    ),
    Authored(
        name="promise-before-the-cap-was-lowered",
        title="Two hours into a promise of eight, the policy lowers the cap to one hour",
        special="a promise that was given stays",
        snapshot=_duel(2 * HOUR, protection_cap=HOUR),
        expect=quiet(),
    ),
    Authored(
        name="promise-in-two-halves",
        title="Two protected jobs hold half a node each; a rival wants a whole one",
        special="protected work is not moved together",
        snapshot=_two_halves(),
        expect=quiet(),
    ),
    Authored(
        name="promise-on-a-dead-node",
        title="A node dies two hours into a promise; its job and a later one want the spare node",
        special="the broken promise is reported, and the older job is first",
        snapshot=_dead(),
        expect=expect(["j"], ["j"]),
    ),
    Authored(
        name="promise-on-a-draining-node",
        title="A node drains, with a deadline after the promise of the job on it",
        special="the drain waits, and nothing starts there",
        snapshot=_leaving(7 * HOUR),
        expect=quiet(),
    ),
    Authored(
        name="promise-past-the-deadline",
        title="The deadline of the drain passed a second ago",
        special="the job stops and its broken promise is reported",
        snapshot=_leaving(-1),
        expect=expect((), ["j"]),
    ),
    Authored(
        name="promise-before-an-announced-drain",
        title="A node will be taken away in two hours; jobs of eight hours and of one wait for it",
        special="the short one starts; the long one does not slip in free of charge",
        snapshot=snapshot(
            flat(1, drain_deadline=NOW + 2 * HOUR),
            [budget("a")],
            [job("long", gpus=4, min_runtime=8 * HOUR), job("short", gpus=4, min_runtime=HOUR)],
            levels=FLAT,
        ),
        expect=expect(["short"], ()),
    ),
]
