"""Situations of shares and of history: only ratios count, and only what was used."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from allocator.domain import Allocation, Snapshot, UsageRecord, Workload
from tests.builders import HOUR, NOW, budget, job, snapshot
from tests.instances.authored import DAY, FLAT, Authored, expect, flat, ones, quiet, ran, record

AB = [budget("a"), budget("b")]


def _no_shares(works: Iterable[Workload], *more: Allocation) -> Snapshot:
    return snapshot(flat(1), [budget("y", 0), budget("z", 0), *more], works, levels=FLAT)


def _shares(first: str, second: str, others: int = 0) -> Snapshot:
    idle = [budget(f"idle-{number:02d}", 1) for number in range(others)]
    return snapshot(
        flat(2), [budget("a", first), budget("b", second), *idle], [*ones("a", "a", 16), *ones("b", "b", 16)], levels=FLAT
    )


def _one_second(longer: int) -> Snapshot:
    works: list[Workload] = []
    for name, host in (("a", "n1"), ("b", "n2")):
        works += [ran(job(f"{name}-{number}", name, 1, restart_time=0), host, hours=3) for number in range(8)]
        works += [job(f"{name}-late-{number}", name, 1) for number in range(4)]
    past = [record("ra", "a", 1, DAY, DAY - HOUR), record("rb", "b", 1, DAY, DAY - HOUR - longer)]
    return snapshot(flat(2), AB, works, usage=past, levels=FLAT)


QUARTERS = expect([*(f"a-{number:02d}" for number in range(4)), *(f"b-{number:02d}" for number in range(12))], ())

SHARES = [
    Authored(
        name="no-shares",
        title="Nobody has a share; half of the jobs ask for two hours, half for nothing",
        special="a budget of nothing pays for nothing: the node is used free of charge, and every number stays finite",
        snapshot=_no_shares(
            [
                job(f"{name}-{number}", name, 1, min_runtime=2 * HOUR * (number % 2), submit_time=NOW - 100 + number)
                for name in "yz"
                for number in range(8)
            ]
        ),
    ),
    Authored(
        name="share-arrives",
        title="Two projects without a share hold the node; one with a share arrives",
        special="whoever has a share gets all of it at once",
        snapshot=_no_shares(
            [
                *(ran(job(f"{n}-{i}", n, 1, min_runtime=0), "n1", hours=1, charged=False) for n in "yz" for i in range(4)),
                *(job(f"w-{number}", "w", 1, submit_time=NOW) for number in range(8)),
            ],
            budget("w", 1),
        ),
        expect=expect([f"w-{number}" for number in range(8)], [f"{name}-{number}" for name in "yz" for number in range(4)]),
    ),
    *(
        Authored(
            name=f"shares-{name}",
            title=title,
            special="only the ratio counts: four GPUs and twelve",
            snapshot=_shares(first, second, others),
            expect=QUARTERS,
        )
        for name, first, second, others, title in (
            ("1-to-3", "1", "3", 0, "Two projects with shares of 1 and 3 want all of two nodes"),
            ("7-to-21", "7", "21", 0, "The same with 7 and 21"),
            ("millions", "1000000", "3000000", 0, "The same in millions"),
            ("hundredths", "0.01", "0.03", 0, "The same in hundredths"),
            ("among-99-idle", "1", "3", 99, "The same beside 99 projects that want nothing"),
        )
    ),
    Authored(
        name="equal-holdings",
        title="Two projects hold a node each beyond their promises, and have used as much",
        special="equals do not evict each other",
        snapshot=_one_second(0),
        expect=quiet(),
    ),
    Authored(
        name="one-gpu-second-apart",
        title="The same, but one has used a single GPU-second more",
        special="a difference that is too small to be worth a stop",
        snapshot=_one_second(1),
        expect=quiet(),
    ),
]


def _named(key: str, name: str, share: int = 1) -> Allocation:
    return replace(budget(key, share), name=name)


def _history(
    usage: Sequence[UsageRecord], budgets: Sequence[Allocation] | None = None, held: Sequence[Workload] = ()
) -> Snapshot:
    """Two projects of equal share want all of two nodes."""
    named = budgets or [_named("a", "Alpha"), budget("b")]
    return snapshot(flat(2), named, [*held, *ones("a", "a", 16), *ones("b", "b", 16)], usage=usage, levels=FLAT)


OLDER = record("r0", "a", 8, 3 * DAY, 3 * DAY - HOUR)
LATER = record("r1", "a", 16, 2 * DAY, 2 * DAY - 6 * HOUR)
PIECES = [record("r1", "a", 16, 2 * DAY, 2 * DAY - 4 * HOUR), record("r1", "a", 16, 2 * DAY - 2 * HOUR, 2 * DAY - 6 * HOUR)]
PARTS = [record("p1", "a", 16, 2 * DAY - 2 * HOUR, 2 * DAY - 6 * HOUR), record("p2", "a", 16, 2 * DAY, 2 * DAY - 2 * HOUR)]

HISTORY = [
    Authored(name=f"history-{name}", title=title, special=special, snapshot=snap, expect=expected)
    for name, title, special, snap, expected in (
        (
            "once",
            "One project has used 104 GPU-hours, the other nothing",
            "the reference of the cases below: all that is one history gives one decision",
            _history([OLDER, LATER]),
            None,
        ),
        ("twice", "A record comes twice", "records with one id count once", _history([OLDER, LATER, LATER]), None),
        (
            "pieces",
            "A record comes in two overlapping pieces of one id",
            "their union counts",
            _history([*PIECES, OLDER]),
            None,
        ),
        (
            "parts",
            "A record comes in two parts with ids of their own",
            "their sum counts",
            _history([PARTS[0], OLDER, PARTS[1]]),
            None,
        ),
        (
            "of-the-deleted",
            "Among the records is one of a project that is gone",
            "it is ignored",
            _history([OLDER, LATER, record("gone", "x", 16, 3 * DAY, 2 * DAY)]),
            None,
        ),
        (
            "uncharged",
            "Among the records is time that was free of charge",
            "it is held against nobody's share",
            _history([OLDER, LATER, record("free", "a", 16, 3 * DAY, 2 * DAY, charged=False)]),
            None,
        ),
        (
            "renamed",
            "The project has another name by now",
            "history belongs to the id",
            _history([OLDER, LATER], [_named("a", "Omega"), budget("b")]),
            None,
        ),
        (
            "new-id",
            "A new project has taken the name, the old id has no share left",
            "history does not follow the name",
            _history([OLDER, LATER], [_named("a", "gone", 0), _named("a2", "Alpha"), budget("b")]),
            None,
        ),
        (
            "out-of-the-window",
            "All usage is older than the window of a week",
            "it is forgotten: eight GPUs each",
            _history([record("r", "a", 16, 8 * DAY, 7 * DAY)]),
            expect([*(f"a-0{number}" for number in range(8)), *(f"b-0{number}" for number in range(8))], ()),
        ),
        (
            "across-the-edge",
            "A record lies half inside the window",
            "the part inside counts",
            _history([record("r", "a", 16, 7 * DAY + 12 * HOUR, 6 * DAY + 12 * HOUR)]),
            None,
        ),
        (
            "from-the-future",
            "Records end, or even begin, in the future",
            "what has passed counts, nothing else",
            _history([record("r", "a", 4, HOUR, -HOUR), record("s", "b", 4, -HOUR, -2 * HOUR)]),
            None,
        ),
        (
            "on-hold",
            "A project that still runs something has been put on hold",
            "its share is nothing, and its run is charged all the same",
            _history([], [budget("a", 0), budget("b")], [ran(job("a-old", "a", 4), "n1", hours=3)]),
            None,
        ),
    )
]

SAME_DECISION = {
    "shares-1-to-3": ("shares-7-to-21", "shares-millions", "shares-hundredths", "shares-among-99-idle"),
    "history-once": (
        "history-twice",
        "history-pieces",
        "history-parts",
        "history-of-the-deleted",
        "history-uncharged",
        "history-renamed",
    ),
    "equal-holdings": ("one-gpu-second-apart",),
}
"""Instances that must be decided like another one: the same starts, stops and promotions."""
