"""Random epochs in which GPUs alone never say what fits: CPUs and memory run out, sizes are odd, gangs come in segments."""

from __future__ import annotations

from random import Random
from typing import Any

from allocator.domain import Node, Snapshot, Workload
from tests.builders import HOUR, NOW, budget, job, node, running, snapshot, weights

PER_GPU = (1, 2, 3, 5)
"""CPUs and GiB per GPU that work asks for; nodes have about three."""


def scarce_snapshot(seed: int) -> Snapshot:
    """Up to eight nodes in up to three racks, with several runs on each, and more demand than fits."""
    rng = Random(seed)
    machines = _machines(rng)
    works = [run for number, machine in enumerate(machines) for run in _runs(rng, f"r{number}", machine)]
    works += [_waiting(rng, f"w{i}") for i in range(rng.randint(2, 7))]
    return snapshot(
        machines,
        [budget("a"), budget("b", rng.choice([1, 1, 3])), budget("c", rng.choice([1, 2]))],
        works,
        slowdown=rng.choice([{}, {"rack": 0.05}]),
        weights=weights(
            fragmentation=rng.choice([0, 0.3]), spread=rng.choice([0, 1]), idle=rng.choice([0.1, 1]),
            lost_work=rng.choice([0.1, 1.5]),
        ),
        preempt_under_entitlement=rng.random() < 0.2,
    )  # fmt: skip


def _machines(rng: Random) -> list[Node]:
    gpus, racks = rng.choice([3, 4, 4, 8]), rng.randint(1, 3)
    kinds: list[dict[str, Any]] = [{"gpus": gpus, "cpus": rng.choice([2, 3]) * gpus, "memory_gib": rng.choice([2, 4]) * gpus}]
    if rng.random() < 0.3:
        kinds.append(kinds[0] | {"cpus": kinds[0]["cpus"] + 1})
    if rng.random() < 0.3:
        kinds.append(kinds[0] | {"drain_deadline": NOW + HOUR})
    return [node(f"n{i}", f"r{i % racks}", **rng.choice(kinds)) for i in range(rng.randint(2, 8))]


def _runs(rng: Random, name: str, machine: Node) -> list[Workload]:
    """Runs that share a node, as far as it has room."""
    found: list[Workload] = []
    left = [machine.gpus, machine.cpus or 0, machine.memory_gib or 0]
    for i in range(rng.choice([0, 0, 1, 2, 4])):
        size = rng.choice([1, 1, 2, 3])
        need = [size, size * rng.choice(PER_GPU), size * rng.choice(PER_GPU)]
        if all(own <= room for own, room in zip(need, left, strict=True)):
            left = [room - own for own, room in zip(need, left, strict=True)]
            fields: dict[str, Any] = {"cpus_per_task": need[1], "memory_gib_per_task": need[2]}
            if (kind := rng.randrange(4)) == 0:
                fields |= {"since": NOW - HOUR, "protected_until": NOW + HOUR}
            elif kind == 1:
                fields |= {"charged": False, "min_runtime": 0}
            found.append(running(f"{name}{i}", rng.choice("abc"), {machine.name: 1}, size, **fields))
    return found


def _waiting(rng: Random, name: str) -> Workload:
    size, tasks = rng.choice([1, 1, 2, 3, 4]), rng.choice([1, 1, 2, 3, 5, 7])
    fields: dict[str, Any] = {"min_runtime": rng.choice([0, 1800, 2 * HOUR, 2 * HOUR]), "user": rng.choice([None, "u", "v"])}
    fields |= {
        "cpus_per_task": size * rng.choice(PER_GPU),
        "memory_gib_per_task": rng.choice([None, size * rng.choice(PER_GPU)]),
    }
    if tasks > 1 and rng.random() < 0.6:
        fields["segment"] = ("rack", rng.choice([1, 2, 3]))
    fields |= {"tasks": tasks, "gpus_per_task": size, "submit_time": NOW - rng.randrange(HOUR)}
    return job(name, rng.choice("abc"), size * tasks, **fields)
