"""Situations that every allocator meets some day, with what any right answer does. Small clusters, one or two projects."""

from __future__ import annotations

from dataclasses import replace

from allocator.domain import LastStop, Snapshot, Unfunded
from tests.builders import HOUR, NOW, budget, job, node, snapshot
from tests.instances.authored import FLAT, MINUTE, Authored, expect, flat, held, quiet, racks, ran, record
from tests.instances.contract import CONTRACT
from tests.instances.shares import HISTORY, SHARES
from tests.instances.whole import WHOLE

AB = [budget("a"), budget("b")]


def _rack(*, one_protected: bool) -> Snapshot:
    """Three racks of four nodes, each node held by a job of `u`. Rack b and c have one promise of six hours each."""
    works = []
    for machine in racks("abc", 4):
        left = 6.0 if machine.name in ("b1", "c3") else 1.0 if machine.name == "a2" and one_protected else 0.0
        works.append(
            ran(job(f"u-{machine.name}", "u", min_runtime=8 * HOUR), machine.name, hours=9 - left if left else 9, left=left)
        )
    gang = job("gang", "h", gpus=32, min_runtime=8 * HOUR, required="rack")
    return snapshot(racks("abc", 4), [budget("h"), budget("u")], [*works, gang])


RACKS = [
    Authored(
        name="rack-to-clear",
        title="A gang needs a whole rack; only in one of three racks has everybody had the time that was promised",
        special="all four jobs of that rack stop, and the gang starts in the same decision; half a rack would help nobody",
        snapshot=_rack(one_protected=False),
        expect=expect(["gang"], ["u-a1", "u-a2", "u-a3", "u-a4"]),
    ),
    Authored(
        name="rack-almost-clear",
        title="The same, but one job of that rack has another hour to go",
        special="nothing may stop yet, but the rack that is free first is held for the gang",
        snapshot=_rack(one_protected=True),
        expect=held("gang", 4, HOUR, "c", "a", expected=quiet(gang="blocked_by_protection")),
    ),
]


def _hole() -> Snapshot:
    works = [
        ran(job("a1", "a", 5), "n1"),
        ran(job("e1", "e", 1, min_runtime=0), "n1", charged=False),
        job("a2", "a", 1),
    ]
    return snapshot(flat(1, gpus=6), [budget("a", 3), budget("b", 3), budget("e", 0)], works, levels=FLAT)


def _larger_claim() -> Snapshot:
    """Five minutes later: e1 has given way to a2, and `b`, which was silent, wants three GPUs."""
    stopped = LastStop(at=NOW - 5 * MINUTE, pool="h100", gpus=1, charged=False)
    works = [
        ran(job("a1", "a", 5), "n1"),
        replace(job("e1", "e", 1, min_runtime=0), stopped=stopped, preempted=1),
        ran(job("a2", "a", 1), "n1", hours=1 / 12, left=2 - 1 / 12),
        job("b1", "b", 3, submit_time=NOW),
    ]
    return snapshot(flat(1, gpus=6), [budget("a", 3), budget("b", 3), budget("e", 0)], works, levels=FLAT)


def _cheapest() -> Snapshot:
    held = []
    for number, lost in enumerate((1500, 900, 1200, 300, 1700, 800, 600, 1600)):
        work = ran(job(f"a-{number}", "a", 1, checkpoint_on_notice=False, checkpoint_interval=1800), "n1")
        assert work.run is not None
        held.append(replace(work, run=replace(work.run, last_checkpoint=NOW - lost)))
    return snapshot(flat(1), AB, [*held, job("b-1", "b", 1)], levels=FLAT)


VICTIMS = [
    Authored(
        name="hole-of-the-evicted",
        title="An unallocated job holds the GPU that a charged job waits for",
        special="it gives way at once, and whoever is solved for next must not hand the GPU back to it",
        snapshot=_hole(),
        expect=expect(["a2"], ["e1"]),
    ),
    Authored(
        name="larger-claim-arrives",
        title="A project that was silent wants three GPUs; the other one holds six, one of them under a fresh promise",
        special="a job of five GPUs stops although three are wanted, and unallocated work takes one of those left over",
        snapshot=_larger_claim(),
        expect=expect(["b1", "e1"], ["a1"]),
    ),
    Authored(
        name="cheapest-victim",
        title="Eight jobs of one project, with checkpoints of different age; another project wants one GPU",
        special="one stop, of the job whose checkpoint is youngest",
        snapshot=_cheapest(),
        expect=expect(["b-1"], ["a-3"]),
    ),
    Authored(
        name="rigid-gang",
        title="The same eight GPUs, held by one gang",
        special="to take eight in order to give one is not worth it",
        snapshot=snapshot(
            flat(1), AB, [ran(job("a-gang", "a", tasks=8, gpus_per_task=1), "n1"), job("b-1", "b", 1)], levels=FLAT
        ),
        expect=quiet(),
    ),
]


def _drizzle() -> Snapshot:
    """One-GPU jobs everywhere: half of them have run for long, half are at various points of their half hour."""
    works = []
    for number in range(64):
        minutes = number // 2 % 6 * 5 if number % 2 else 120
        left = max(0, 29 - minutes) / 60 if number % 2 else 0
        work = job(f"d{number:03d}", "d", 1, min_runtime=30 * MINUTE)
        works.append(ran(work, f"n{number // 8 + 1}", hours=(minutes + 1) / 60, left=left))
    works += [job(f"d{number}", "d", 1, min_runtime=30 * MINUTE) for number in range(100, 164)]
    works += [job(f"filler-{number}", "f", 1, min_runtime=0) for number in range(8)]
    works.append(job("gang", "h", 64, min_runtime=HOUR))
    past = [record("r", "d", 64, 14 * HOUR, 2 * HOUR)]
    return snapshot(flat(8), [budget("h"), budget("d"), budget("f", 0)], works, usage=past, levels=FLAT)


def _staggered() -> Snapshot:
    works = [
        ran(job(f"d{number}", "d", min_runtime=8 * HOUR), f"n{number}", hours=10 - number, left=max(0, number - 2))
        for number in range(1, 9)
    ]
    works += [job(f"more-{number}", "d", min_runtime=8 * HOUR) for number in range(8)]
    works.append(job("gang", "h", 32, min_runtime=8 * HOUR))
    past = [record("r", "d", 64, 30 * HOUR, 20 * HOUR)]
    return snapshot(flat(8), [budget("h"), budget("d")], works, usage=past, levels=FLAT)


def _impossible() -> Snapshot:
    """A busy cluster of two pools, and among good requests some that can never be met."""
    machines = [node(f"h{i}", f"leaf{i // 4}", domains=("c", f"leaf{i // 4}", f"h{i}")) for i in range(12)]
    machines += [node(f"g{i:02d}", domains=("c", "gleaf", "rack"), pool="gb300", gpus=4) for i in range(18)]
    works = [ran(job(f"r{i}", "a", min_runtime=8 * HOUR, pools=("h100",)), f"h{i}", hours=1, left=7) for i in range(4)]
    works += [job(f"good-{i}", "b", 2, pools=("h100",)) for i in range(8)]
    works += [
        job("good-gang", "b", 32, pools=("h100",), required="leaf"),
        job("nine", "b", 9, tasks=1, gpus_per_task=9, pools=("h100",)),
        job("wide", "b", 73, tasks=73, gpus_per_task=1, pools=("gb300",), required="nvlink"),
        job("endless", "b", 8, tasks=10**6, gpus_per_task=8, pools=("h100",)),
    ]
    return snapshot(machines, AB, works, levels=("cluster", "leaf", "nvlink", "node"))


def _small_first() -> Snapshot:
    works = [ran(job("old", "p", 3, min_runtime=8 * HOUR), "a1", hours=1, left=7)]
    works += [job(f"j{number:02d}", "p", 1, min_runtime=8 * HOUR) for number in range(13)]
    return snapshot(racks("ab", 4, gpus=4), [budget("p")], works)


def _who_pays(used_hours: int) -> Snapshot:
    people = [budget(f"r{number:02d}", 1, "a", funds=False) for number in range(13)]
    past = [record("r", "r02", 64, 150 * HOUR, (150 - used_hours) * HOUR)] if used_hours else []
    gang = job("gang", "r01", 64, min_runtime=8 * HOUR)
    return snapshot(flat(8), [budget("a"), budget("b"), *people], [gang], usage=past, levels=FLAT)


def _broke() -> Snapshot:
    works = [ran(job(f"z-{i:02d}", "z", 1, min_runtime=0), f"n{i // 8 + 1}", charged=False) for i in range(16)]
    works += [
        job("debug", "a", 1, min_runtime=30 * MINUTE, user="u1"),
        job("long", "a", 8, min_runtime=8 * HOUR, unfunded=Unfunded.WAIT),
    ]
    past = [record("r", "a", 16, 120 * HOUR, 20 * HOUR)]
    return snapshot(flat(2), [budget("a"), budget("b"), budget("z")], works, usage=past, levels=FLAT)


OTHERS = [
    Authored(
        name="drizzle",
        title="A gang as large as the cluster waits among an endless drizzle of half-hour jobs",
        special="somebody is always protected; the cluster is held for the moment at which the last promise ends",
        snapshot=_drizzle(),
        expect=held("gang", 8, 29 * MINUTE, "c"),
    ),
    Authored(
        name="staggered-promises",
        title="Nodes come free hour by hour; a gang needs half of them",
        special="a number of nodes is held, not their names, and no promise is made that would delay it",
        snapshot=_staggered(),
        expect=held("gang", 4, 2 * HOUR, "c", expected=quiet(gang="blocked_by_protection")),
    ),
    Authored(
        name="impossible-requests",
        title="Nine GPUs of a node, 73 of a rack of 72, a million nodes: and everything else is decided",
        special="rejected by name, for good, without harm to the others",
        snapshot=_impossible(),
        expect=expect(
            ["good-gang", *(f"good-{number}" for number in range(8))], (), nine="invalid_request", wide="topology_impossible"
        ),
    ),
    Authored(
        name="small-jobs-first",
        title="Thirteen one-GPU jobs, and two racks of which one is whole",
        special="they fill what is broken up, so that a rack stays whole for the gang that comes next",
        snapshot=_small_first(),
        expect=expect([f"j{number:02d}" for number in range(13)], ()),
    ),
    Authored(
        name="small-jobs-on-one-node",
        title="Four one-GPU jobs, half a node free on one node and a whole one beside it",
        special="the same within nodes",
        snapshot=snapshot(
            flat(2),
            [budget("p")],
            [
                ran(job("old", "p", 4, min_runtime=8 * HOUR), "n1", hours=1, left=7),
                *(job(f"j{number}", "p", 1, min_runtime=8 * HOUR) for number in range(4)),
            ],
            levels=FLAT,
        ),
        expect=expect([f"j{number}" for number in range(4)], ()),
    ),
    Authored(
        name="project-pays",
        title="One of thirteen researchers has a gang that costs more than a thirteenth of the project",
        special="researchers hold no budget; the project pays",
        snapshot=_who_pays(0),
        expect=expect(["gang"], ()),
    ),
    Authored(
        name="project-is-broke",
        title="The same once the project has used up its budget",
        special="the gang uses the idle cluster free of charge, without a promise",
        snapshot=_who_pays(100),
        expect=expect(["gang"], ()),
    ),
    Authored(
        name="express-beside-a-long-job",
        title="A project that is over budget has a debug job and a long one; unallocated work fills both nodes",
        special="the debug job starts at once for exactly one stop, the long one waits for funds",
        snapshot=_broke(),
        expect=expect(["debug"], None, (), long="unfunded"),
    ),
]

SITUATIONS = [*RACKS, *VICTIMS, *SHARES, *CONTRACT, *WHOLE, *HISTORY, *OTHERS]
