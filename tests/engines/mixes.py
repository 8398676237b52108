"""Random mixes of node classes and demands by seed, to try whether counts can always be laid out on nodes."""

from __future__ import annotations

from random import Random
from typing import Any

from allocator.domain import Node, Snapshot, Workload
from tests.builders import HOUR, NOW, budget, job, node, running, snapshot, weights

SIZES = ((1, 2, 4, 8), (1, 2, 4), (8,), (2, 8), (1, 3), (3, 5, 6), (2, 3, 4), (1, 2, 5, 8), (6,), (4, 6))
"""Sizes of tasks that occur together: chains of divisors, which may be counted together, and others, which may not."""

LABELS = ("x", "y")


def mixed_snapshot(seed: int) -> Snapshot:
    """Up to 12 nodes in up to three racks, some of them held, and more demand than fits.

    Even seeds have nodes that are alike, so that many are counted together; odd ones have nodes of several kinds.
    """
    rng = Random(seed)
    alike = seed % 2 == 0
    machines = _machines(rng, alike)
    sizes = rng.choice(SIZES)
    works = _residents(rng, machines, alike)
    works += [_waiting(rng, f"w{i:02}", sizes) for i in range(rng.randint(3, 10))]
    return snapshot(
        machines,
        [budget("a"), budget("b", rng.choice([1, 1, 3]))],
        works,
        slowdown={} if alike else rng.choice([{}, {"rack": 0.05}, {"rack": 0.05, "node": 0.01}]),
        weights=weights(
            fragmentation=0 if alike else rng.choice([0, 0.01, 0.3]),
            spread=rng.choice([0, 1]),
            idle=rng.choice([0.1, 1]),
            lost_work=rng.choice([0.1, 1.5]),
        ),
        preempt_under_entitlement=rng.random() < 0.5,
    )


def _machines(rng: Random, alike: bool) -> list[Node]:
    kinds: list[dict[str, Any]] = [{"gpus": rng.choice([4, 8, 8, 8])}]
    if rng.random() < 0.3:
        kinds[0] |= {"cpus": rng.choice([16, 24, 32])}
    racks = 1 if alike else rng.choice([1, 2, 3])
    if not alike:
        kinds += [{"gpus": rng.choice([4, 6, 8])}] * rng.randint(0, 1)
        kinds += [kinds[0] | {"cpus": rng.choice([8, 16, 32]), "memory_gib": rng.choice([None, 64])}] * rng.randint(0, 1)
        kinds += [kinds[0] | {"labels": {"arch": rng.choice(LABELS)}}] * rng.randint(0, 1)
        kinds += [kinds[0] | {"drain_deadline": NOW + HOUR}] * rng.randint(0, 1)
    return [node(f"n{i:02}", f"r{i % racks}", **rng.choice(kinds)) for i in range(rng.randint(2, 12))]


def _residents(rng: Random, machines: list[Node], alike: bool) -> list[Workload]:
    """Runs that fill their nodes or leave a part of them, at times two on the same nodes; some may be stopped."""
    found: list[Workload] = []
    left = list(machines)
    while left and rng.random() < 0.7:
        count = rng.randint(2, 5) if alike else rng.choice([1, 1, 2, 3])
        chosen = [machine for machine in left if machine.gpus == left[0].gpus][:count]
        room = chosen[0].gpus
        for _ in range(rng.choice([1, 1, 2])):
            if room:
                size = room if rng.random() < 0.4 else rng.randint(1, room)
                tasks = rng.randint(1, room // size)
                room -= tasks * size
                found.append(_run(rng, f"r{len(found):02}", {machine.name: tasks for machine in chosen}, size))
        left = [machine for machine in left if machine not in chosen]
    return found


def _run(rng: Random, name: str, placement: dict[str, int], size: int) -> Workload:
    fields: dict[str, Any] = {"tasks": sum(placement.values()), "gpus_per_task": size}
    gpus = fields["tasks"] * size
    match rng.randrange(3):
        case 0:
            return running(name, "a", placement, gpus, since=NOW - HOUR, protected_until=NOW + HOUR, **fields)
        case 1:
            return running(name, "a", placement, gpus, **fields)
        case _:
            return running(name, "a", placement, gpus, charged=False, min_runtime=0, **fields)


def _waiting(rng: Random, name: str, sizes: tuple[int, ...]) -> Workload:
    size, tasks = rng.choice(sizes), rng.choice([1, 1, 1, 2, 3, 4, 6])
    fields: dict[str, Any] = {"min_runtime": rng.choice([0, 1800, 2 * HOUR, 2 * HOUR]), "user": rng.choice([None, "u", "v"])}
    if rng.random() < 0.3:
        fields["cpus_per_task"] = rng.choice([1, size, 2 * size, 5 * size, 8])
    if rng.random() < 0.1:
        fields["memory_gib_per_task"] = rng.choice([4, 8 * size])
    if rng.random() < 0.15:
        fields["node_labels"] = {"arch": rng.choice(LABELS)}
    if rng.random() < 0.1:
        fields["exclude_nodes"] = ("n01",)
    match rng.randrange(8):
        case 0:
            fields["required"] = "rack"
        case 1:
            fields["required"] = "node"
        case 2:
            fields["segment"] = ("rack", rng.choice([1, 2, 3]))
        case 3:
            fields["preferred"] = "rack"
        case _:
            pass
    fields |= {"tasks": tasks, "gpus_per_task": size, "submit_time": NOW - rng.randrange(HOUR)}
    return job(name, rng.choice("ab"), size * tasks, **fields)
