"""The synthetic sample as a trace: a private mapping, good enough to play with."""

from __future__ import annotations

import csv
from fractions import Fraction
from pathlib import Path

from allocator.domain import Allocation, Cluster, Node, TopologyWish, Workload
from allocator.domain.trace import Job, Trace

DAY = 86_400
MONDAY = 1_764_547_200
"""2025-12-01, a Monday."""

SAMPLE = "sample_synthetic_small_7d.csv"

POOLS = {"h100": 16, "b200": 8, "b300": 4}
"""Nodes of 8 GPUs by pool."""

SHARES = {
    "base": (45, {"pretrain": 65, "data-ablations": 35}),
    "adapt": (22, {"posttrain": 45, "rl": 55}),
    "multimodal": (13, {"train": 1}),
    "science": (7, {"core": 1}),
    "robotics": (6, {"core": 1}),
    "climate": (3, {"core": 1}),
    "shared": (4, {"core": 1}),
}

PRIORITIES = {"low": -1, "normal": 0, "high": 1, "urgent": 2}


def sample_trace(path: Path, *, days: int = 7, pools: dict[str, int] | None = None, scale: float = 1.0) -> Trace:
    """The first days of a file of the synthetic form; `scale` below 1 brings the jobs closer together."""
    with path.open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if float(row["submit_s"]) * scale < days * DAY]
    shares = sorted({(row["project"], row["user"]) for row in rows})
    return Trace(
        name=path.stem,
        start=MONDAY,
        end=MONDAY + days * DAY,
        cluster=_cluster(pools or POOLS),
        budgets=_budgets(shares),
        jobs=tuple(sorted(_jobs(rows, scale), key=lambda job: (job.workload.submit_time, job.workload.id))),
    )


def _cluster(pools: dict[str, int]) -> Cluster:
    nodes = [
        Node(name=f"{pool}-{i:03d}", pool=pool, gpus=8, domains=("c", f"{pool}-su{i // 32}", f"{pool}-leaf{i // 4}"))
        for pool, count in pools.items()
        for i in range(count)
    ]
    return Cluster(levels=("cluster", "su", "leaf", "node"), nodes=tuple(nodes), slowdown={"leaf": Fraction(1, 50)})


def _budgets(users: list[tuple[str, str]]) -> tuple[Allocation, ...]:
    vertices: dict[str, Allocation] = {}
    for project, user in users:
        parts = project.split("/")[1:]
        for depth in range(len(parts)):
            key = "/".join(parts[: depth + 1])
            parent = "/".join(parts[:depth]) or None
            program = SHARES.get(parts[0], (1, {}))
            share = program[0] if depth == 0 else program[1].get(parts[depth], 1)
            vertices.setdefault(key, Allocation(id=key, parent=parent, share=Fraction(share)))
        key = f"{'/'.join(parts)}/{user}"
        vertices[key] = Allocation(id=key, parent="/".join(parts), share=Fraction(1), funds=False)
    return tuple(vertices.values())


def _jobs(rows: list[dict[str, str]], scale: float) -> list[Job]:
    last: dict[str, str] = {}
    jobs = []
    for row in rows:
        campaign = row["campaign"]
        job = _job(row, last.get(campaign) if campaign else None, scale)
        jobs.append(job)
        if campaign:
            last[campaign] = job.workload.id
    return jobs


def _job(row: dict[str, str], after: str | None, scale: float) -> Job:
    gpus = int(row["gpus"])
    per_task = min(gpus, 8)
    work = Workload(
        id=f"j{int(row['job_id']):06d}",
        allocation=f"{row['project'].removeprefix('org/')}/{row['user']}",
        submit_time=MONDAY + int(float(row["submit_s"]) * scale),
        tasks=gpus // per_task,
        gpus_per_task=per_task,
        min_runtime=int(row["min_runtime_s"]),
        resumable=row["resumable"] == "1",
        user=row["user"],
        job_class=row["class"],
        pools=() if row["pool"] == "any" else (row["pool"],),
        topology=TopologyWish(preferred=row["topology"] if row["topology"] in ("leaf", "su") else None),
        checkpoint_interval=int(row["ckpt_interval_s"]) or None,
        checkpoint_on_notice=row["resumable"] == "1",
        restart_time=int(row["restart_s"]),
        priority=PRIORITIES[row["priority"]],
        max_runtime=int(row["time_limit_s"]),
    )
    return Job(workload=work, work=max(1, int(float(row["duration_s"]))), checkpoint_cost=int(row["ckpt_cost_s"]), after=after)
