"""One scene for each rule of the contract. Each asserts what its picture is there to show."""

from __future__ import annotations

from collections.abc import Callable

from docs._pictures.stage import (
    HOUR,
    MINUTE,
    NOW,
    Json,
    Mark,
    Picture,
    Play,
    arrives,
    cluster,
    dies,
    ends,
    hours,
    job,
    running,
)


def protection() -> Picture:
    """A promise is capped, and kept; afterwards the run goes on until somebody with a better claim comes."""
    play = Play(cluster(["n1"], {"a": 1, "b": 1}, [job("A1", "a", 12)]))
    play.run(hours(0, 2, 8, 12), {hours(2)[0]: arrives(job("B1", "b", 4))})
    assert [stop.workload for stop in play.decisions[8 * HOUR].preemptions] == ["A1"]
    marks = [Mark(8 * HOUR, "cap: 8 h")]
    return Picture("A1 asks for 12 h, is promised 8, and gives way to B1 then", ["n1"], 12 * HOUR, play.bars, marks)


def express() -> Picture:
    """A debug job starts at once, in the place of uncharged work."""
    works = [
        running(job("A1", "a", 4), "n1", until=3),
        running(job("U1", "b", 0, 4), "n2", charged=False),
        running(job("U2", "b", 0, 4), "n2", charged=False),
    ]
    play = Play(cluster(["n1", "n2"], {"a": 1, "b": 1}, works))
    debug = job("D", "a", 0.5, 4, user="ann")
    play.run(hours(0, 1, 1.5, 3), {HOUR: arrives(debug), 3 * HOUR // 2: ends("D")})
    (start,) = play.decisions[HOUR].starts
    assert (start.workload, start.express, len(play.decisions[HOUR].preemptions)) == ("D", True, 1)
    title = "The debug job D starts the moment it arrives; unallocated work gives way and comes back"
    return Picture(title, ["n1", "n2"], 3 * HOUR, play.bars, [Mark(HOUR, "D arrives")])


def promotion() -> Picture:
    """Work that cannot be paid for runs free of charge, and is promoted in place once it can."""
    budget = 8 * (168 + 8) // 2
    old = {"allocation": "a", "pool": "h100", "charged": True}
    week = 7 * 24 * HOUR
    usage = [
        old | {"id": "old", "gpus": 8, "start": NOW - week + HOUR, "end": NOW - week + 5 * HOUR},
        old | {"id": "new", "gpus": budget - 32, "start": NOW - 3 * HOUR, "end": NOW - 2 * HOUR},
    ]
    play = Play(cluster(["n1"], {"a": 1, "b": 1}, [job("A1", "a", 2)], usage=usage))
    play.run(hours(0, 1, 2, 3, 4, 5, 6))
    at = next(at for at, decision in play.decisions.items() if decision.promotions)
    assert not play.decisions[0].starts[0].charged
    title = "A1 runs free of charge until its budget can pay, and is then charged and protected in place"
    return Picture(title, ["n1"], 6 * HOUR, play.bars, [Mark(at, "promoted: old usage has left the window")])


def entitlement() -> Picture:
    """A small allocation that has been idle is owed the whole cluster for a while, and again when its turn comes."""
    nodes = ["n1", "n2", "n3", "n4"]
    works = [running(job(f"A{at}", "a", 1), f"n{at}", since=-1, until=0) for at in range(1, 5)]
    usage = [{"id": "u", "allocation": "a", "pool": "h100", "gpus": 32, "start": NOW - 11 * HOUR, "end": NOW - HOUR}]
    play = Play(cluster(nodes, {"a": 3, "b": 1}, works, usage=usage))
    play.run(hours(*range(17)), {HOUR: arrives(job("B", "b", 2, 32))})
    turns = [at for at, decision in play.decisions.items() if "B" in {start.workload for start in decision.starts}]
    assert len(turns) >= 3
    assert turns[0] == HOUR
    title = "b has a quarter of the shares and was idle: it is owed all four nodes for some hours, then they take turns"
    return Picture(title, nodes, 16 * HOUR, play.bars, [Mark(HOUR, "B arrives: a gang of four nodes")])


def reservation() -> Picture:
    """A number of nodes is kept for a large gang from an instant on; until then, what ends in time may use them."""
    nodes = ["n1", "n2", "n3", "n4"]
    works = [running(job(f"A{at}", "a", 8), f"n{at}", since=at - 8, until=at) for at in range(1, 5)]
    gang = job("G", "b", 2, 24, entitled_since=NOW - HOUR)
    come = arrives(job("S1", "a", 1), job("S2", "a", 4, priority=1))
    events = {HOUR: lambda snapshot: come(ends("A1")(snapshot))}
    alone = Play(cluster(nodes, {"a": 1, "b": 1}, works)).run(hours(0, 1, 2), events)
    assert [start.workload for start in alone.decisions[HOUR].starts] == ["S2"], "without G the other one would start"
    play = Play(cluster(nodes, {"a": 1, "b": 1}, [*works, gang])).run(hours(*range(9)), events)
    kept = play.decisions[0].reservations[0]
    assert (kept.nodes, kept.start, kept.bound) == (3, NOW + 3 * HOUR, NOW + 7 * HOUR)
    assert [start.workload for start in play.decisions[HOUR].starts] == ["S1"]
    title = "Three of four nodes are kept for gang G from hour 3 on: S1 ends in time and may use one, S2 may not"
    marks = [Mark(3 * HOUR, "start: G on three of the nodes"), Mark(7 * HOUR, "bound")]
    return Picture(title, nodes, 8 * HOUR, play.bars, marks)


def drain() -> Picture:
    """Nothing starts on a draining node, unprotected work leaves, and promises are kept."""
    nodes: list[str | Json] = [{"name": "n1", "state": "drain"}, {"name": "n2", "state": "drain"}, "n3"]
    works = [running(job("A1", "a", 4), "n1", until=3), running(job("A2", "a", 1), "n2", since=-3, until=-2)]
    play = Play(cluster(nodes, {"a": 1, "b": 1}, works))
    play.run(hours(0, 3, 5))
    free = {row.node: row.free_at for row in play.decisions[0].drains}
    assert free == {"n1": NOW + 3 * HOUR, "n2": NOW}
    marks = [Mark(3 * HOUR, "free_at of n1"), Mark(3 * HOUR, node="n1", until=5 * HOUR), Mark(0, node="n2", until=5 * HOUR)]
    title = "n1 and n2 drain: A2 leaves n2 at once, A1 keeps n1 until its promise ends, which the decision says beforehand"
    return Picture(title, ["n1", "n2", "n3"], 5 * HOUR, play.bars, marks)


def lease() -> Picture:
    """A session is renewed as long as its allocation is within its entitlement."""
    session = job("S", "a", 1, renew=True, user="ann")
    works = [running(session, "n1", since=-0.5, until=0.5), running(job("A1", "a", 8), "n2", since=-1, until=7)]
    play = Play(cluster(["n1", "n2"], {"a": 1, "b": 1}, works))
    play.run(hours(0, 0.5, 1.5, 2, 2.5, 3.5, 4.5), {2 * HOUR: arrives(job("B1", "b", 4))})
    renewed = [at for at, decision in play.decisions.items() if decision.renewals]
    assert renewed == hours(0.5, 1.5)
    assert [stop.workload for stop in play.decisions[5 * HOUR // 2].preemptions] == ["S"]
    marks = [Mark(renewed[0], "renewed"), Mark(renewed[1], "renewed"), Mark(5 * HOUR // 2, "lapses")]
    title = "Session S is renewed each hour; once a holds more than it is owed it lapses, and B1 may have the node"
    return Picture(title, ["n1", "n2"], 9 * HOUR // 2, play.bars, marks)


def commitment() -> Picture:
    """Victims leave in peace, and what was ordered for later finds its place."""
    nodes = ["n1", "n2", "n3"]
    minute = MINUTE / HOUR
    works = [
        running(job("V1", "a", 1), "n1", since=-3, until=-2, terminating_until=NOW + 10 * MINUTE),
        running(job("B1", "b", 4), "n1", since=10 * minute, granted_at=NOW - MINUTE, until=4),
        running(job("V2", "a", 1), "n2", since=-3, until=-2, terminating_until=NOW - MINUTE),
        running(job("B2", "b", 4), "n2", since=2 * minute, granted_at=NOW - MINUTE, until=4),
    ]
    play = Play(cluster(nodes, {"a": 1, "b": 1}, works))
    play.run([0, 10 * MINUTE, 30 * MINUTE])
    assert {start.workload: [*start.placement] for start in play.decisions[0].starts} == {"B2": ["n3"]}
    title = "V1 leaves in time and B1 follows it; V2 is overdue, so nothing is put on n2 and B2 is planned anew, on n3"
    return Picture(title, nodes, 30 * MINUTE, play.bars, [Mark(10 * MINUTE, "V1 must be gone")], unit=MINUTE)


def unallocated_last() -> Picture:
    """Unallocated work keeps no GPU that entitled work waits for."""
    works = [running(job("A1", "a", 1, 4), "n1", since=-3, until=-2), running(job("E1", "e", 0, 4), "n1", charged=False)]
    play = Play(cluster(["n1"], {"a": 1, "e": 1}, works))
    play.run(hours(0, 1, 2, 3), {HOUR: arrives(job("A2", "a", 1, 4))})
    decision = play.decisions[HOUR]
    assert ([row.workload for row in decision.preemptions], [row.workload for row in decision.starts]) == (["E1"], ["A2"])
    title = "A2 starts the moment it arrives; E1, free of charge, makes room in the same decision"
    return Picture(title, ["n1"], 3 * HOUR, play.bars, [Mark(HOUR, "A2 arrives")])


def repair() -> Picture:
    """A gang that lost a node goes on beside the nodes that are left."""
    nodes = ["n1", "n2", "n3"]
    gang = job("G", "a", 6, 16) | {"topology": {"required": "rack"}}
    play = Play(cluster(nodes, {"a": 1, "b": 1}, [gang]))
    play.run(hours(0, 2, 5), {2 * HOUR: dies("n2")})
    decision = play.decisions[2 * HOUR]
    assert [row.workload for row in decision.contract_broken] == ["G"]
    assert [[*start.placement] for start in decision.starts] == [["n1", "n3"]]
    marks = [Mark(2 * HOUR, "n2 dies"), Mark(2 * HOUR, node="n2", until=5 * HOUR)]
    title = "Gang G loses n2 and restarts at once in the same rack: on n1, which it had, and on n3"
    return Picture(title, nodes, 5 * HOUR, play.bars, marks)


def relocation() -> Picture:
    """Unprotected work moves so that a gang finds its rack. G is called small (`reserve_from`), so it gets no reservation."""
    nodes = ["r1/n1", "r1/n2", "r2/n3"]
    machines: list[str | Json] = [{"name": name, "domains": ["c", name.split("/")[0]]} for name in nodes]
    works = [running(job("A1", "a", 2, 4), "r1/n1", since=-3, until=-1)]
    gang = job("G", "b", 3, 16) | {"topology": {"required": "rack"}}
    small = {"reserve_from": 1}
    play = Play(cluster(machines, {"a": 1, "b": 1}, works, policy=small)).run(hours(0, 2, 5), {2 * HOUR: arrives(gang)})
    decision = play.decisions[2 * HOUR]
    assert [(row.workload, row.reason.value) for row in decision.preemptions] == [("A1", "relocate")]
    assert {row.workload: [*row.placement] for row in decision.starts} == {"A1": ["r2/n3"], "G": ["r1/n1", "r1/n2"]}
    title = "Gang G needs both nodes of rack r1: A1, whose promise is over, moves to r2 in the same decision"
    return Picture(title, nodes, 5 * HOUR, play.bars, [Mark(2 * HOUR, "G arrives")])


SCENES: dict[str, Callable[[], Picture]] = {
    scene.__name__.replace("_", "-"): scene
    for scene in (
        protection, express, promotion, entitlement, reservation, drain, lease, commitment, repair, relocation,
        unallocated_last,
    )
}  # fmt: skip
"""By the name of the file."""
