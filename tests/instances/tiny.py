"""Instances whose optimum is derived by hand; the derivations are the README.md files of their folders."""

from __future__ import annotations

from tests.builders import HOUR, NOW, budget, job, node, snapshot, used
from tests.instances.authored import FLAT, Authored, expect, flat, ones, quiet, racks, ran

AB = [budget("a"), budget("b")]

TINY = [
    Authored(
        name="queue-order",
        title="Two jobs of one project want the same node",
        special="the smallest instance with a choice: order alone decides",
        snapshot=snapshot(
            flat(1),
            [budget("a")],
            [job("first", submit_time=NOW - 2 * HOUR), job("second", submit_time=NOW - HOUR)],
            levels=FLAT,
        ),
        optimum=14.4,
        expect=expect(["first"], ()),
    ),
    Authored(
        name="whole-node",
        title="Half a node is wanted, and half a node is free",
        special="fragmentation: the node that is broken up already has to be found",
        snapshot=snapshot(
            flat(2), [budget("a")], [ran(job("old", gpus=4), "n1", hours=1, left=1), job("new", gpus=4)], levels=FLAT
        ),
        optimum=28_800.0,
        expect=expect(["new"], ()),
    ),
    Authored(
        name="one-to-three",
        title="Two projects with shares of 1 and 3 want eight GPUs each of one node",
        special="fair shares are met exactly; only the order of those that wait is left to pay",
        snapshot=snapshot(flat(1), [budget("a", 1), budget("b", 3)], [*ones("a", "a", 8), *ones("b", "b", 8)], levels=FLAT),
        optimum=10.8,
        expect=expect(["a-00", "a-01", *(f"b-0{number}" for number in range(6))], ()),
    ),
    Authored(
        name="gangs-larger-than-shares",
        title="Two projects with equal shares have a gang of six GPUs each, and the node has eight",
        special="shares cannot be met: one project is two GPUs above, the other four below; two optima",
        snapshot=snapshot(flat(1), AB, [job("ga", "a", 6), job("gb", "b", 6)], levels=FLAT),
        optimum=51_213.6,
    ),
    Authored(
        name="give-way",
        title="One project holds the whole node beyond its promises, another one waits with half a node",
        special="who is owed half gets it, for the sake of shares, from whom it costs least",
        snapshot=snapshot(
            flat(1), AB, [ran(job("r1", "a", 4), "n1"), ran(job("r2", "a", 4), "n1"), job("w", "b", 4)], levels=FLAT
        ),
        optimum=367.2,
        expect=expect(["w"], ["r2"]),
    ),
    Authored(
        name="promises-hold",
        title="The same while both promises have an hour to run",
        special="promises are floors of the entitlement: nobody is owed what they hold",
        snapshot=snapshot(
            flat(1),
            AB,
            [ran(job("r1", "a", 4), "n1", hours=1, left=1), ran(job("r2", "a", 4), "n1", hours=1, left=1), job("w", "b", 4)],
            levels=FLAT,
        ),
        optimum=14.4,
        expect=quiet(w="blocked_by_protection"),
    ),
    Authored(
        name="room-for-the-gang",
        title="A gang needs one of two racks whole, a small job fits anywhere",
        special="the small job has to leave the whole rack to the gang",
        snapshot=snapshot(
            racks("ab", 2),
            [budget("a")],
            [
                ran(job("old"), "a1", hours=1, left=1),
                job("small", submit_time=NOW - 2 * HOUR),
                job("gang", gpus=16, required="rack"),
            ],
        ),
        optimum=0.0,
        expect=expect(["gang", "small"], ()),
    ),
    Authored(
        name="segments-of-two",
        title="Four tasks in segments of two, on racks with three, one and two free trays",
        special="3 + 1 would leave two racks with half a segment; only 2 + 2 will do",
        snapshot=snapshot(
            racks("xyz", 3, gpus=4),
            [budget("a")],
            [
                *(ran(job(f"old-{name}", gpus=4), name, hours=1, left=1) for name in ("y1", "y2", "z1")),
                job("segmented", gpus=16, tasks=4, gpus_per_task=4, segment=("rack", 2)),
                job("loose", gpus=8, tasks=2, gpus_per_task=4),
            ],
        ),
        optimum=0.0,
        expect=expect(["segmented", "loose"], ()),
    ),
    Authored(
        name="spread-or-wait",
        title="A gang would rather lie in one rack, but each rack has one free node",
        special="a tenth of its speed costs less than idle nodes",
        snapshot=snapshot(
            racks("ab", 2),
            [budget("a")],
            [
                ran(job("old-a"), "a1", hours=1, left=1),
                ran(job("old-b"), "b1", hours=1, left=1),
                job("gang", gpus=16, preferred="rack"),
            ],
            slowdown={"rack": 0.05},
        ),
        optimum=5_760.0,
        expect=expect(["gang"], ()),
    ),
    Authored(
        name="promotion",
        title="Work that runs free of charge can be paid for at last, while an equal claim waits",
        special="a promotion needs no stop, and so beats a start that is worth as much",
        snapshot=snapshot(flat(1), AB, [ran(job("u", "a"), "n1", hours=1, charged=False), job("w", "b")], levels=FLAT),
        optimum=44_668.8,
        expect=expect((), (), ["u"]),
    ),
    Authored(
        name="express-when-broke",
        title="A project that has used up its budget has a debug job; unallocated work fills the node",
        special="the express lane is always funded; of equal victims the last in order stops",
        snapshot=snapshot(
            flat(1),
            [budget("a"), budget("z")],
            [
                *(ran(job(f"z{number}", "z", 1, min_runtime=0), "n1", charged=False) for number in range(8)),
                job("debug", "a", 1, min_runtime=HOUR // 2, user="u1"),
            ],
            usage=[used("a", 6000)],
            levels=FLAT,
        ),
        optimum=9.45,
        expect=expect(["debug"], ["z7"]),
    ),
    Authored(
        name="dead-node",
        title="A node has died under a promise, and a spare one is free",
        special="a stop that is no choice is part of the optimum",
        snapshot=snapshot(
            [node("n1", domains=("c",), state="down"), node("n2", domains=("c",))],
            [budget("a")],
            [ran(job("w"), "n1", hours=1, left=1)],
            levels=FLAT,
        ),
        optimum=720.0,
        expect=expect(["w"], ["w"]),
    ),
    Authored(
        name="repair",
        title="A gang of two nodes has lost one; its rack has a spare node, and another rack of three is free",
        special="a restart is due wherever it lies: what is broken up decides",
        snapshot=snapshot(
            [node("a1", "a"), node("a2", "a", state="down"), *racks("a", 3)[2:], *racks("b", 3)],
            [budget("a")],
            [ran(job("gang", gpus=16), {"a1": 1, "a2": 1}, hours=1, left=1)],
        ),
        optimum=87_840.0,
        expect=expect(["gang"], ["gang"], placed={"gang": "a1 a3"}),
    ),
    Authored(
        name="drain",
        title="A node drains, and half of the next one is free; its job needs a whole one",
        special="a node that drains does not idle, and its job has a landing place in the same decision",
        snapshot=snapshot(
            [node("n1", domains=("c",), state="drain"), *flat(3)[1:]],
            [budget("a")],
            [ran(job("w"), "n1"), ran(job("half", gpus=4), "n2", hours=1, left=1)],
            levels=FLAT,
        ),
        optimum=15_120.0,
        expect=expect(["w"], ["w"], placed={"w": "n3"}),
    ),
    Authored(
        name="move-for-a-rack",
        title="A gang needs a rack in which half a node is in use, by a project that holds what it is owed",
        special="who has no need to stop moves: a restart costs less than sixteen GPUs that idle",
        snapshot=snapshot(
            racks("ab", 2),
            [*AB, budget("c")],
            [
                ran(job("firm", "c"), "b1", hours=1, left=1),
                ran(job("small", "a", 4), "a1"),
                job("gang", "b", 16, required="rack"),
            ],
        ),
        optimum=14_904.0,
        expect=expect(["gang", "small"], ["small"], placed={"gang": "a1 a2", "small": "b2"}),
    ),
]
