"""Situations of the whole contract: repair, the way home, leases, victims that are leaving, drains, reservations and moves.

Most come in pairs: where it can be done, and where it cannot.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

from allocator.bench.documents import ExpectDoc
from allocator.domain import LastStop, Node, NodeState, Reservation, Snapshot, Workload
from tests.builders import HOUR, NOW, budget, job, node, snapshot
from tests.instances.authored import DAY, FLAT, MINUTE, Authored, expect, flat, held, quiet, racks, ran, record

AB = [budget("a"), budget("b")]
ABC = [*AB, budget("c")]


def _gang(name: str, where: str, **fields: Any) -> Workload:
    """A gang of whole nodes an hour into its promise of two."""
    names = where.split()
    return ran(job(name, gpus=8 * len(names), **fields), dict.fromkeys(names, 1), hours=1, left=1)


def _down(machine: Node) -> Node:
    return replace(machine, state=NodeState.DOWN)


def _dead(per_rack: int, gone: str, *works: Workload) -> Snapshot:
    """Two racks; some of their nodes have died. To lie in both slows a gang down."""
    machines = [_down(one) if one.name in gone.split() else one for one in racks("ab", per_rack)]
    return snapshot(machines, [budget("a")], works, slowdown={"rack": 0.05})


REPAIR = [
    Authored(
        name="repair-in-the-rack",
        title="A gang of four nodes has lost one; its rack has a spare node, and the other rack is wholly free",
        special="it keeps the three nodes that survive: to break up the other rack would cost",
        snapshot=_dead(5, "a2", _gang("g", "a1 a2 a3 a4")),
        expect=expect(["g"], ["g"], placed={"g": "a1 a3 a4 a5"}),
    ),
    Authored(
        name="repair-elsewhere",
        title="The same without a spare node in its rack",
        special="over two racks it would be slower, and a restart is due anyway: it moves as a whole",
        snapshot=_dead(4, "a2", _gang("g", "a1 a2 a3 a4")),
        expect=expect(["g"], ["g"], placed={"g": "b1 b2 b3 b4"}),
    ),
    Authored(
        name="repair-of-two",
        title="Two gangs have lost a node each, in two racks with a spare node each",
        special="both are repaired in one decision, each where it was",
        snapshot=_dead(4, "a1 b1", _gang("g", "a1 a2 a3"), _gang("h", "b1 b2 b3")),
        expect=expect(["g", "h"], ["g", "h"], placed={"g": "a2 a3 a4", "h": "b2 b3 b4"}),
    ),
    Authored(
        name="repair-of-one-of-two",
        title="The same, but the gang that came first needs a whole rack, and no rack has four nodes left",
        special="it waits, and keeps nobody waiting",
        snapshot=_dead(
            4, "a1 b1", _gang("g", "a1 a2 a3 a4", required="rack", submit_time=NOW - 9 * HOUR), _gang("h", "b1 b2 b3")
        ),
        expect=expect(["h"], ["g", "h"], placed={"h": "b2 b3 b4"}),
    ),
]


def _came_back(where: str) -> Workload:
    """A session that was stopped a minute ago."""
    stop = LastStop(at=NOW - MINUTE, pool="h100", gpus=8, charged=True, placement={where: 1})
    return replace(job("session", renew=True), stopped=stop, preempted=1)


HOME = [
    Authored(
        name="home-is-free",
        title="A session that was stopped a minute ago waits again; three nodes are free, and one of them was its own",
        special="nodes are the same to the score, but not to those who left files on one",
        snapshot=snapshot(flat(3), [budget("a")], [_came_back("n2")], levels=FLAT),
        expect=expect(["session"], (), placed={"session": "n2"}),
    ),
    Authored(
        name="home-is-taken",
        title="The same, but somebody has been promised its node meanwhile",
        special="it starts all the same",
        snapshot=snapshot(flat(2), [budget("a")], [ran(job("next"), "n2", hours=1, left=1), _came_back("n2")], levels=FLAT),
        expect=expect(["session"], (), placed={"session": "n1"}),
    ),
]


def _session(name: str, allocation: str = "a", gpus: int = 8, where: str = "n1") -> Workload:
    """Its promise of two hours ends at this instant."""
    return ran(job(name, allocation, gpus, renew=True), where, hours=2)


LEASES = [
    Authored(
        name="lease-renewed",
        title="The promise of a session ends; unallocated work waits, and nobody is owed its node",
        special="it is promised another two hours without asking",
        snapshot=snapshot(flat(1), AB, [_session("session"), job("filler", "b", min_runtime=0)], levels=FLAT),
        expect=expect((), (), (), renewals=["session"]),
    ),
    Authored(
        name="lease-lapses",
        title="The same, but another project is owed the node",
        special="a session holds what it is owed and no more; it gives way like any work whose promise is over",
        snapshot=snapshot(
            flat(1), AB, [_session("session"), job("rival", "b")], usage=[record("r", "a", 8, 2 * DAY, DAY)], levels=FLAT
        ),
        expect=expect(["rival"], ["session"], renewals=()),
    ),
    Authored(
        name="lease-limit",
        title="Two sessions of four GPUs end their first promise; six GPUs may be held by sessions for longer",
        special="the one that was submitted first is renewed; the other one goes on without a promise",
        snapshot=snapshot(
            flat(1),
            [budget("a", interactive_limit=6), budget("b")],
            [_session("first", gpus=4), replace(_session("second", gpus=4), submit_time=NOW - HOUR)],
            levels=FLAT,
        ),
        expect=expect((), (), (), renewals=["first"]),
    ),
]


def _leaving(name: str, where: str, gpus: int = 8, *, until: int) -> Workload:
    """Unallocated work that has been told to be gone by then."""
    work = ran(job(name, "a", gpus, min_runtime=0), where, charged=False)
    assert work.run is not None
    return replace(work, run=replace(work.run, terminating_until=until))


def _ordered(name: str, where: str) -> Workload:
    """Its start was ordered two minutes ago, for a minute ahead."""
    names = where.split()
    work = ran(job(name, "b", 8 * len(names)), dict.fromkeys(names, 1), hours=-MINUTE / HOUR, left=2)
    assert work.run is not None
    return replace(work, run=replace(work.run, granted_at=NOW - 2 * MINUTE))


def _free(name: str, where: str) -> Workload:
    return ran(job(name, "a", min_runtime=0), where, charged=False)


LEAVING = [
    Authored(
        name="leaving-in-time",
        title="One node will be free in a minute, because its job was told to leave; another one holds unallocated work",
        special="who waits takes the place of the one who leaves already, instead of making another one leave",
        snapshot=snapshot(
            flat(2), AB, [_leaving("old", "n1", until=NOW + 60), _free("other", "n2"), job("w", "b")], levels=FLAT
        ),
        expect=quiet(w="no_capacity"),
    ),
    Authored(
        name="leaving-for-another",
        title="The same, but the place of the one who leaves has been ordered for somebody else",
        special="nobody waits for a place that is taken",
        snapshot=snapshot(
            flat(2),
            AB,
            [_leaving("old", "n1", until=NOW + 60), _ordered("next", "n1"), _free("other", "n2"), job("w", "b")],
            levels=FLAT,
        ),
        expect=expect(["w"], ["other"], placed={"w": "n2"}),
    ),
    Authored(
        name="leaving-overdue",
        title="A job should have left a node by now; a gang was ordered to take its place and the node beside it",
        special="the gang is planned anew at once, on the node beside it and a third one",
        snapshot=snapshot(flat(3), AB, [_leaving("old", "n1", until=NOW), _ordered("gang", "n1 n2")], levels=FLAT),
        expect=expect(["gang"], ["gang"], placed={"gang": "n2 n3"}),
    ),
    Authored(
        name="leaving-overdue-no-room",
        title="The same without a third node, and a job of one node waits",
        special="half a gang's hole is not kept: the job takes the node beside it",
        snapshot=snapshot(
            flat(2), AB, [_leaving("old", "n1", until=NOW), _ordered("gang", "n1 n2"), job("w", "b")], levels=FLAT
        ),
        expect=expect(["w"], ["gang"], placed={"w": "n2"}),
    ),
]


def _draining(*works: Workload, **fields: Any) -> Snapshot:
    machines = [node("n1", domains=("c",), state="drain", **fields), *flat(2)[1:]]
    return snapshot(machines, [budget("a")], works, levels=FLAT)


DRAINS = [
    Authored(
        name="drain-with-a-place",
        title="A node drains; the promise of its job is over, and another node is free",
        special="it stops and starts there in the same decision: nobody has to be asked",
        snapshot=_draining(ran(job("w"), "n1")),
        expect=expect(["w"], ["w"], placed={"w": "n2"}),
    ),
    Authored(
        name="drain-without-a-place",
        title="The same, but the other node is promised to somebody",
        special="it leaves at once and waits in its old place of the queue",
        snapshot=_draining(ran(job("w"), "n1"), ran(job("firm"), "n2", hours=1, left=1)),
        expect=expect((), ["w"], w="blocked_by_protection"),
    ),
]


def _reserved(start: int, count: int = 2, *domain: str) -> Reservation:
    """What an hour ago was kept for `gang`."""
    return Reservation(
        workload="gang", pool="h100", domain=("c", *domain), nodes=count, start=start, eligible_since=NOW - HOUR,
        bound=NOW + 7 * HOUR,
    )  # fmt: skip


def _large(count: int = 2, **fields: Any) -> Workload:
    return job("gang", "b", 8 * count, min_runtime=8 * HOUR, entitled_since=NOW - HOUR, **fields)


def _busy(*hours: float) -> list[Workload]:
    """A job of `a` on each of n1, n2, ... with so many hours to go."""
    return [ran(job(f"r{i}"), f"n{i}", hours=1, left=left) for i, left in enumerate(hours, start=1)]


def none() -> ExpectDoc:
    """Nothing is kept, and nothing moves."""
    found = quiet()
    found.reserved = {}
    return found


def _unlucky() -> Snapshot:
    """Rack b, of which two nodes were kept, has lost one; rack a comes free later."""
    machines = [_down(one) if one.name == "b2" else one for one in racks("ab", 2)]
    works = [ran(job(f"r{i}"), name, hours=1, left=left) for i, (name, left) in enumerate([("a1", 3), ("a2", 2), ("b1", 1)])]
    return snapshot(machines, AB, [*works, _large(required="rack")], reservations=[_reserved(NOW + HOUR, 2, "b")])


LARGE = [
    Authored(
        name="reservation-latched",
        title="Two nodes are kept for a gang from an hour ahead; meanwhile its project has used more than its share",
        special="what was kept stays kept: a gang that is entitled once is so until it starts",
        snapshot=snapshot(
            flat(3),
            AB,
            [*_busy(1, 1, 2), _large()],
            reservations=[_reserved(NOW + HOUR)],
            usage=[record("r", "b", 24, 12 * HOUR, 2 * HOUR)],
            levels=FLAT,
        ),
        expect=held("gang", 2, HOUR, "c", expected=quiet(gang="blocked_by_protection")),
    ),
    Authored(
        name="reservation-not-yet",
        title="The same without what was kept: its project is owed nothing",
        special="who is not entitled is kept nothing",
        snapshot=snapshot(
            flat(3),
            AB,
            [*_busy(1, 1, 2), replace(_large(), entitled_since=None)],
            usage=[record("r", "b", 24, 12 * HOUR, 2 * HOUR)],
            levels=FLAT,
        ),
        expect=none(),
    ),
    Authored(
        name="reservation-remade",
        title="Two nodes of a rack were kept for a gang, and one of them has died",
        special="it is made anew, once, for the other rack and a later instant",
        snapshot=_unlucky(),
        expect=held("gang", 2, 3 * HOUR, "c", "a", expected=quiet(gang="blocked_by_protection")),
    ),
    Authored(
        name="reservation-due",
        title="The instant has come; three nodes hold work of a project that is owed all it holds, one of it dear to stop",
        special="the gang needs no licence now, and takes the two that are cheaper to clear",
        snapshot=snapshot(
            flat(3),
            [budget("a", 9), budget("b")],
            [
                ran(job("dear", resumable=False, checkpoint_on_notice=False), "n1"),
                ran(job("cheap-1"), "n2"),
                ran(job("cheap-2"), "n3"),
                _large(),
            ],
            reservations=[_reserved(NOW)],
            usage=[record("r", "b", 24, 30 * HOUR, 20 * HOUR)],
            levels=FLAT,
        ),
        expect=expect(["gang"], ["cheap-1", "cheap-2"], placed={"gang": "n2 n3"}),
    ),
]


def _straddling(room: int) -> Snapshot:
    """A pair lies in racks a and c, of projects that are owed what they hold; racks b and c have a promise on each node."""
    works = [
        ran(job("pair", "a", 4, gpus_per_task=2), {"a1": 1, "c1": 1}),
        *(ran(job(f"firm-{name}", "c", 8 - room), name, hours=1, left=1) for name in ("b1", "b2", "c2")),
        ran(job("firm-c1", "c", 6), "c1", hours=1, left=1),
        job("gang", "b", 16, required="rack"),
    ]
    return snapshot(racks("abc", 2), [budget("a", 2), *ABC[1:]], works, reserve_from=Fraction(1), slowdown={"rack": 0.02})


MOVES = [
    Authored(
        name="gang-in-the-way",
        title="A gang is owed a rack; half of a pair lies in it, and the pair would fit elsewhere",
        special="the pair moves as a whole, and comes together where it costs nothing",
        snapshot=_straddling(2),
        expect=expect(["gang", "pair"], ["pair"], placed={"gang": "a1 a2"}),
    ),
    Authored(
        name="gang-that-has-to-stay",
        title="The same, but there is no other place for the pair",
        special="nobody takes from a project what it is owed: the gang waits",
        snapshot=_straddling(0),
        expect=quiet(),
    ),
]

WHOLE = [*REPAIR, *HOME, *LEASES, *LEAVING, *DRAINS, *LARGE, *MOVES]
