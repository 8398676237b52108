"""For every hard rule a snapshot with a decision that keeps all rules and one that breaks just this one."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from allocator.domain import LastStop, Renewal, Reservation, Snapshot, StopReason, Workload
from tests.builders import HOUR, NOW, budget, decision, job, node, nodes, snapshot, start, stop, used
from tests.instances.authored import Authored, racks, ran

AB = [budget("a"), budget("b")]
BROKE = [used("a", 6000)]


def _capacity() -> Authored:
    snap = snapshot(nodes(2), [budget("a")], [ran(job("old"), "n1"), job("new")])
    return Authored(
        name="capacity",
        title="A job waits; one of two nodes is in use",
        special="what is kept counts like what starts",
        instead="the job starts on the node that is in use",
        rule="capacity",
        snapshot=snap,
        accepted=decision(snap, [start("new", {"n2": 1})]),
        refused=decision(snap, [start("new", {"n1": 1})]),
    )


def _gang() -> Authored:
    snap = snapshot(nodes(3), [budget("a")], [job("gang", gpus=24)])
    return Authored(
        name="gang",
        title="A gang of three nodes waits; three nodes are free",
        special="all tasks run, or none",
        instead="two of its three tasks start",
        rule="gang",
        snapshot=snap,
        accepted=decision(snap, [start("gang", {"n1": 1, "n2": 1, "n3": 1})]),
        refused=decision(snap, [start("gang", {"n1": 1, "n2": 1})]),
    )


def _single_node_task() -> Authored:
    snap = snapshot([node("n1"), node("s1", gpus=4), node("s2", gpus=4)], [budget("a")], [job("w")])
    return Authored(
        name="single_node_task",
        title="A task of eight GPUs waits; a node of eight and two of four are free",
        special="a task lies on one node, so small nodes are of no use together",
        instead="the task starts on a node of four GPUs, which it cannot but overfill",
        rule="single_node_task",
        also_broken=["capacity"],
        snapshot=snap,
        accepted=decision(snap, [start("w", {"n1": 1})]),
        refused=decision(snap, [start("w", {"s1": 1})]),
    )


def _topology_required() -> Authored:
    snap = snapshot(racks("ab", 2), [budget("a")], [job("gang", gpus=16, required="rack")])
    return Authored(
        name="topology-required",
        title="A gang of two nodes has to lie in one rack; two racks are free",
        special="the domain is the whole path, not the name",
        instead="one task lies in each rack",
        rule="topology",
        snapshot=snap,
        accepted=decision(snap, [start("gang", {"b1": 1, "b2": 1})]),
        refused=decision(snap, [start("gang", {"a1": 1, "b1": 1})]),
    )


def _topology_segment() -> Authored:
    snap = snapshot(racks("ab", 3), [budget("a")], [job("gang", gpus=32, segment=("rack", 2))])
    return Authored(
        name="topology-segment",
        title="A gang of four nodes in segments of two; two racks of three nodes are free",
        special="every rack holds whole segments, but for one remainder",
        instead="three tasks lie in one rack and one in the other: two remainders",
        rule="topology",
        snapshot=snap,
        accepted=decision(snap, [start("gang", {"a1": 1, "a2": 1, "b1": 1, "b2": 1})]),
        refused=decision(snap, [start("gang", {"a1": 1, "a2": 1, "a3": 1, "b1": 1})]),
    )


def _eligibility() -> Authored:
    machines = [node("n1", labels={"arch": "aarch64"}), node("n2", labels={"arch": "x86_64"})]
    snap = snapshot(machines, [budget("a")], [job("w", node_labels={"arch": "x86_64"})])
    return Authored(
        name="eligibility",
        title="A job wants nodes with a label; one of two free nodes carries it",
        special="labels, pools and excluded nodes are one rule",
        instead="the job starts on the node without the label",
        rule="eligibility",
        snapshot=snap,
        accepted=decision(snap, [start("w", {"n2": 1})]),
        refused=decision(snap, [start("w", {"n1": 1})]),
    )


def _protection() -> Authored:
    works = [ran(job("old", "a"), "n1", hours=1, left=1), job("new", "b")]
    snap = snapshot(nodes(1), AB, works, preempt_under_entitlement=True)
    return Authored(
        name="protection",
        title="A job has an hour of its promise left; another project waits for its node",
        special="no licence is needed here, so that nothing but the promise protects",
        instead="the protected job is stopped",
        rule="protection",
        snapshot=snap,
        accepted=decision(snap),
        refused=decision(snap, [start("new", {"n1": 1})], [stop("old", "new", reason=StopReason.SHARE)]),
    )


def _health() -> Authored:
    snap = snapshot([node("n1", state="drain"), node("n2")], [budget("a")], [job("w")])
    return Authored(
        name="health-drain",
        title="A job waits; one of two free nodes drains",
        special="nothing starts on a draining node",
        instead="the job starts on the draining node",
        rule="health",
        snapshot=snap,
        accepted=decision(snap, [start("w", {"n2": 1})]),
        refused=decision(snap, [start("w", {"n1": 1})]),
    )


def _health_deadline() -> Authored:
    machines = [node("n1", drain_deadline=NOW + HOUR), node("n2", drain_deadline=NOW + 2 * HOUR)]
    snap = snapshot(machines, [budget("a")], [job("w")])
    return Authored(
        name="health-deadline",
        title="A job asks for two hours; one node will drain in one hour, one in two",
        special="a promise may end at the very second of the deadline",
        instead="the promise outlasts the deadline by an hour",
        rule="health",
        snapshot=snap,
        accepted=decision(snap, [start("w", {"n2": 1})]),
        refused=decision(snap, [start("w", {"n1": 1})]),
    )


def _funding() -> Authored:
    snap = snapshot(nodes(1), [budget("a")], [job("w")], usage=BROKE)
    return Authored(
        name="funding",
        title="A project has used up its budget; its job waits and a node is free",
        special="it may run free of charge, without a promise",
        instead="the job starts charged, with a promise that nobody can pay",
        rule="funding",
        snapshot=snap,
        accepted=decision(snap, [start("w", {"n1": 1}, charged=False)]),
        refused=decision(snap, [start("w", {"n1": 1}, charged=True)]),
    )


def _gpu_limit() -> Authored:
    budgets = [budget("top", gpu_limit=12), budget("a", parent="top"), budget("b", parent="top")]
    works = [ran(job("old", "a", 8), "n1", hours=1, left=1), job("small", "b", 4), job("large", "b", 8)]
    snap = snapshot(nodes(2), budgets, works)
    return Authored(
        name="gpu_limit",
        title="A program may hold twelve GPUs and holds eight; jobs of four and eight wait",
        special="the limit counts the whole subtree, charged or not",
        instead="the larger job starts: sixteen GPUs",
        rule="gpu_limit",
        snapshot=snap,
        accepted=decision(snap, [start("small", {"n2": 1})]),
        refused=decision(snap, [start("large", {"n2": 1})]),
    )


def _express() -> Authored:
    works = [job(f"w{number}", gpus=1, min_runtime=600, user="u1") for number in range(3)]
    snap = snapshot(nodes(1), [budget("a")], works)
    two = [start("w0", {"n1": 1}), start("w1", {"n1": 1})]
    return Authored(
        name="express",
        title="One user has three short jobs of one GPU; the lane takes two of a user",
        special="the third starts as well, but as ordinary work",
        instead="the third is marked express too",
        rule="express",
        snapshot=snap,
        accepted=decision(snap, [*two, start("w2", {"n1": 1})]),
        refused=decision(snap, [*two, start("w2", {"n1": 1}, express=True)]),
    )


def _max_preemptions() -> Authored:
    works = [ran(job("old1", "a"), "n1"), ran(job("old2", "a"), "n2"), job("new1", "b"), job("new2", "b")]
    snap = snapshot(nodes(2), AB, works, max_preemptions=1)
    one, two = start("new1", {"n1": 1}), start("new2", {"n2": 1})
    return Authored(
        name="max_preemptions",
        title="One project holds two nodes beyond its promises; the policy allows one stop in a decision",
        special="stops of unallocated work would not count",
        instead="both are stopped",
        rule="max_preemptions",
        snapshot=snap,
        accepted=decision(snap, [one], [stop("old1", "new1")]),
        refused=decision(snap, [one, two], [stop("old1", "new1"), stop("old2", "new2")]),
    )


def _licence() -> Authored:
    works = [ran(job("old", "a"), "n1"), job("new", "b")]
    snap = snapshot(nodes(1), [budget("a", 9), budget("b")], works, usage=[used("b", 20)])
    return Authored(
        name="licence",
        title="A project with nine tenths of the shares holds the node and is owed it",
        special="its promise is kept, but nobody has a better claim",
        instead="it is stopped for the sake of shares",
        rule="licence",
        snapshot=snap,
        accepted=decision(snap),
        refused=decision(snap, [start("new", {"n1": 1})], [stop("old", "new")]),
    )


def _beneficiary() -> Authored:
    works = [ran(job("old", "a"), "n1"), job("new", "b"), job("other", "b")]
    snap = snapshot(nodes(2), AB, works)
    starts = [start("new", {"n1": 1}), start("other", {"n2": 1})]
    return Authored(
        name="beneficiary",
        title="A job gives way to one start; another start takes a free node",
        special="a stop names those for whom it makes room, and nobody else",
        instead="the stop names the start on the other node",
        rule="beneficiary",
        snapshot=snap,
        accepted=decision(snap, starts, [stop("old", "new")]),
        refused=decision(snap, starts, [stop("old", "other")]),
    )


def _reservation() -> Authored:
    past = [used("a", 320, ago=10 * HOUR)]
    works = [
        ran(job("old", "a"), "n1", hours=1, left=2),
        job("gang", "b", 16, min_runtime=8 * HOUR, entitled_since=NOW - 60),
        job("two-hours", "b", 8, min_runtime=2 * HOUR),
        job("three-hours", "b", 8, min_runtime=3 * HOUR),
    ]
    snap = snapshot(nodes(2), AB, works, usage=past)
    return Authored(
        name="reservation",
        title="Both nodes are held for a gang from the moment, in two hours, at which a promise ends",
        special="until then the free node may be promised to whoever is done in time",
        instead="the free node is promised for an hour longer",
        rule="reservation",
        snapshot=snap,
        accepted=decision(snap, [start("two-hours", {"n2": 1})]),
        refused=decision(snap, [start("three-hours", {"n2": 1})]),
    )


def _lease() -> Authored:
    session = ran(job("session", "a", renew=True), "n1", hours=2)
    snap = snapshot(nodes(1), AB, [session, job("new", "b", min_runtime=0)])
    return Authored(
        name="lease",
        title="The promise of an interactive session ends now; its project is owed what it holds",
        special="it gets another min runtime without asking, as long as nobody has a better claim",
        instead="it is not renewed",
        rule="lease",
        snapshot=snap,
        accepted=decision(snap),
        refused=decision(snap, renewals=()),
    )


def _commitment() -> Authored:
    gone = replace(job("gone", "a", 4), stopped=LastStop(at=NOW, pool="h100", gpus=4, charged=True), preempted=1)
    snap = snapshot(nodes(1), AB, [gone, job("new", "b", 4)])
    return Authored(
        name="commitment",
        title="A job was stopped at this very instant; another one waits, and the node is free",
        special="what was ordered a moment ago is not taken back in a second call",
        instead="the stopped job starts again at once",
        rule="commitment",
        snapshot=snap,
        accepted=decision(snap, [start("new", {"n1": 1})]),
        refused=decision(snap, [start("new", {"n1": 1}), start("gone", {"n1": 1})]),
    )


def _lease_limit() -> Authored:
    sessions = [ran(job(f"session{number}", "a", 4, renew=True), "n1", hours=2) for number in (1, 2)]
    snap = snapshot(nodes(1), [budget("a", interactive_limit=6), budget("b")], sessions)
    longer = [Renewal(workload=work.id, protected_until=NOW + 2 * HOUR) for work in sessions]
    return Authored(
        name="lease-limit",
        title="Two sessions of four GPUs end their first promise; six GPUs may be held by sessions for longer",
        special="one is renewed; the other one goes on without a promise",
        instead="both are renewed",
        rule="lease",
        snapshot=snap,
        accepted=decision(snap),
        refused=decision(snap, renewals=longer),
    )


def _leaving(until: int, gpus: int) -> Workload:
    work = ran(job("old", "a", gpus, min_runtime=0), "n1", charged=False)
    assert work.run is not None
    return replace(work, run=replace(work.run, terminating_until=until))


def _commitment_leaving() -> Authored:
    works = [_leaving(NOW + 60, 8), ran(job("free", "a", min_runtime=0), "n2", charged=False), job("new", "b")]
    snap = snapshot(nodes(2), AB, works)
    return Authored(
        name="commitment-leaving",
        title="A job waits; a node will be free in a minute, because its job was told to leave, and another one is in use",
        special="who leaves already leaves before anybody else is made to",
        instead="the job on the other node is stopped",
        rule="commitment",
        snapshot=snap,
        accepted=decision(snap),
        refused=decision(snap, [start("new", {"n2": 1})], [stop("free", "new")]),
    )


def _commitment_overdue() -> Authored:
    snap = snapshot(nodes(2), AB, [_leaving(NOW, 4), job("new", "b", 4)])
    return Authored(
        name="commitment-overdue",
        title="A job should have left half of a node by now; half a node is wanted, and another node is free",
        special="a node that does not let go of its work takes no other",
        instead="the job that waits starts beside it",
        rule="commitment",
        snapshot=snap,
        accepted=decision(snap, [start("new", {"n2": 1})]),
        refused=decision(snap, [start("new", {"n1": 1})]),
    )


def _health_unprotected() -> Authored:
    snap = snapshot([node("n1", state="drain"), node("n2")], [budget("a")], [ran(job("old"), "n1")])
    return Authored(
        name="health-unprotected",
        title="A node drains; the promise of its job is over, and another node is free",
        special="unprotected work leaves at once, with a landing place",
        instead="it stays",
        rule="health",
        snapshot=snap,
        accepted=decision(snap, [start("old", {"n2": 1})], [stop("old")]),
        refused=decision(snap),
    )


def _large(until: int) -> Snapshot:
    """Two nodes are kept for a gang from an instant on; it is entitled for an hour."""
    gang = job("gang", "b", 16, min_runtime=8 * HOUR, entitled_since=NOW - HOUR)
    kept = Reservation(
        workload="gang", pool="h100", domain=("c",), nodes=2, start=until, eligible_since=NOW - HOUR, bound=NOW + 7 * HOUR
    )  # fmt: skip
    works = [ran(job(f"old{number}", "a", min_runtime=8 * HOUR), f"n{number}", left=(until - NOW) / HOUR) for number in (1, 2)]
    past = [used("b", 140, ago=20 * HOUR)]
    return snapshot(nodes(2), [budget("a", 9), budget("b")], [*works, gang], reservations=[kept], usage=past)


def _reservation_due() -> Authored:
    snap, stops = _large(NOW), [stop("old1", "gang"), stop("old2", "gang")]
    return Authored(
        name="reservation-due",
        title="Two nodes are kept for a gang from now on; the project that holds them is owed them",
        special="a promise of an hour ago: whatever is unprotected there gives way, licence or not",
        instead="nothing happens",
        rule="reservation",
        also_broken=("health",),
        snapshot=snap,
        accepted=decision(snap, [start("gang", {"n1": 1, "n2": 1})], stops),
        refused=decision(snap),
    )


def _reservation_kept() -> Authored:
    snap = _large(NOW + HOUR)
    return Authored(
        name="reservation-kept",
        title="Two nodes are kept for a gang from an hour ahead",
        special="what was kept stays kept until the gang starts",
        instead="the reservation is dropped",
        rule="reservation",
        snapshot=snap,
        accepted=decision(snap),
        refused=decision(snap, reservations=()),
    )


def _charged_first() -> Authored:
    works = [ran(job("paid", "a", 4), "n1"), ran(job("free", "a", 4, min_runtime=0), "n1", charged=False), job("new", "b", 4)]
    snap = snapshot(nodes(1), AB, works, preempt_under_entitlement=True)
    return Authored(
        name="charged_first",
        title="Half of a node is held by charged work, half by unallocated work; half a node is needed",
        special="either stop makes room, but charged work stops last",
        instead="the charged job is stopped",
        rule="charged_first",
        snapshot=snap,
        accepted=decision(snap, [start("new", {"n1": 1})], [stop("free", "new")]),
        refused=decision(snap, [start("new", {"n1": 1})], [stop("paid", "new")]),
    )


def _relocation() -> Authored:
    works = [
        ran(job("session", "a", 4, renew=True), "a1"),
        ran(job("small", "a", 4), "b1"),
        *(ran(job(f"firm-{name}", "c", 4), name, hours=1, left=1) for name in ("c1", "c2")),
        job("gang", "b", 16, required="rack"),
    ]
    budgets = [budget("a", interactive_limit=0), *AB[1:], budget("c")]
    snap = snapshot(racks("abc", 2), budgets, works, reserve_from=Fraction(1))
    return Authored(
        name="relocation",
        title="A gang is owed a rack; two hold work that has no need to stop, and the third has room for it",
        special="the job moves for the gang, and keeps what it holds; a session whose lease has lapsed stays where it is",
        instead="the session moves",
        rule="relocation",
        snapshot=snap,
        accepted=decision(snap, [start("gang", {"b1": 1, "b2": 1}), start("small", {"c1": 1})], [stop("small", "gang")]),
        refused=decision(snap, [start("gang", {"a1": 1, "a2": 1}), start("session", {"c1": 1})], [stop("session", "gang")]),
    )


def _minimal() -> Authored:
    works = [ran(job(f"free{number}", "a", 4, min_runtime=0), "n1", charged=False) for number in (1, 2)]
    snap = snapshot(nodes(1), AB, [*works, job("new", "b", 4)])
    one = [start("new", {"n1": 1})]
    return Authored(
        name="minimal",
        title="Two unallocated jobs of half a node each; half a node is needed",
        special="one of them has to go, whichever",
        instead="both are stopped",
        rule="minimal",
        snapshot=snap,
        accepted=decision(snap, one, [stop("free1", "new")]),
        refused=decision(snap, one, [stop("free1", "new"), stop("free2", "new")]),
    )


def _work_conservation() -> Authored:
    snap = snapshot(nodes(1), AB, [job("w", min_runtime=0)])
    return Authored(
        name="work_conservation",
        title="Unallocated work waits, and a node is free",
        special="idle GPUs belong to whoever can use them",
        instead="nothing starts",
        rule="work_conservation",
        snapshot=snap,
        accepted=decision(snap, [start("w", {"n1": 1})]),
        refused=decision(snap),
    )


def _unallocated_last() -> Authored:
    works = [ran(job("free", "a", min_runtime=0), "n1", charged=False), job("new", "b")]
    snap = snapshot(nodes(1), AB, works)
    return Authored(
        name="unallocated_last",
        title="Unallocated work holds the node; an entitled job waits",
        special="unallocated work keeps nothing that entitled work could use",
        instead="everything stays as it is",
        rule="unallocated_last",
        snapshot=snap,
        accepted=decision(snap, [start("new", {"n1": 1})], [stop("free", "new")]),
        refused=decision(snap),
    )


TWINS = [
    make()
    for make in (
        _capacity, _gang, _single_node_task, _topology_required, _topology_segment, _eligibility, _protection, _health,
        _health_deadline, _funding, _gpu_limit, _express, _max_preemptions, _licence, _relocation, _reservation, _lease,
        _commitment, _lease_limit, _commitment_leaving, _commitment_overdue, _health_unprotected, _reservation_due,
        _reservation_kept, _beneficiary, _charged_first, _minimal,
        _work_conservation, _unallocated_last,
    )
]  # fmt: skip
