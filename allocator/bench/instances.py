"""One snapshot to be solved: made by the generator, or read from a file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from allocator.bench.documents import GeneratedDoc, read_entry
from allocator.domain import Snapshot
from allocator.entitlement import Entitlement
from allocator.generate import generate_snapshot
from allocator.wire import encode_snapshot
from allocator.wire.source import read_bytes

SNAPSHOT, ENTRY = "snapshot.json", "entry.json"
"""The files of an instance that is a folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is known of one generated instance: its optimum lies between the bounds, in 1/1000 GPU-second."""

    instance: str
    seed: int
    digest: str
    lower_bound: int
    upper_bound: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A snapshot by name. `seed` is None for files, `read` gives its bytes.

    `lower_bound` is known beforehand, in 1/1000 GPU-second; `digest` is that of the snapshot that it holds for (None: any).
    """

    name: str
    family: str
    seed: int | None
    read: Callable[[], bytes] = field(compare=False)
    lower_bound: int | None = None
    digest: str | None = None

    @property
    def key(self) -> tuple[str, int]:
        """What tells instances apart."""
        return self.name, -1 if self.seed is None else self.seed

    @property
    def label(self) -> str:
        """For people."""
        return self.name if self.seed is None else f"{self.name} seed {self.seed}"


def generated(doc: GeneratedDoc, seed: int, known: Known | None = None) -> Instance:
    """The instance of one seed, and what is known of it."""

    def read() -> bytes:
        made = generate_snapshot(
            gpus=doc.gpus,
            seed=seed,
            pools=doc.pools,
            queue=doc.queue,
            leaves=doc.leaves,
            history=doc.history,
            family=doc.family,
        )
        return encode_snapshot(made)

    bound, digest = (None, None) if known is None else (known.lower_bound, known.digest)
    return Instance(name=doc.name, family=doc.family, seed=seed, read=read, lower_bound=bound, digest=digest)


def from_file(path: Path, name: str) -> Instance:
    """A snapshot file, or a folder with `snapshot.json` and `entry.json`."""
    if not path.is_dir():
        return Instance(name=name, family="file", seed=None, read=lambda: read_bytes(path))
    entry = read_entry(path / ENTRY)
    known = entry.lower_bound if entry.optimum is None else entry.optimum
    bound = None if known is None else round(known * 1000)
    file = path / SNAPSHOT
    return Instance(name=name, family=path.parent.name, seed=None, read=lambda: read_bytes(file), lower_bound=bound)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The size of a snapshot. `step` is what the gap is measured by: planning step x schedulable GPUs, 1/1000 GPU-second."""

    gpus: int
    nodes: int
    pools: int
    leaves: int
    running: int
    waiting: int
    step: int


def facts_of(ent: Entitlement) -> Facts:
    """Count what a snapshot holds."""
    snapshot: Snapshot = ent.snapshot
    parents = {vertex.parent for vertex in snapshot.budgets}
    running = sum(work.run is not None for work in snapshot.workloads)
    return Facts(
        gpus=sum(node.gpus for node in snapshot.cluster.nodes),
        nodes=len(snapshot.cluster.nodes),
        pools=len({node.pool for node in snapshot.cluster.nodes}),
        leaves=sum(vertex.id not in parents for vertex in snapshot.budgets),
        running=running,
        waiting=len(snapshot.workloads) - running + len(snapshot.rejected),
        step=max(1, 1000 * snapshot.policy.planning_step * int(ent.market.schedulable.sum())),
    )
