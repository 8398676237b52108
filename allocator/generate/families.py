"""The registry of families: a name, and a function from parameters and seed to a snapshot.

A further family is a module with such a function and one line in `FAMILIES`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from allocator.domain import Issue, Snapshot, SnapshotError
from allocator.generate.contests import generate_giant, generate_hopeless, generate_queue, generate_victims
from allocator.generate.contract import generate_contract
from allocator.generate.mixed import generate_drain, generate_fleet, generate_mixed
from allocator.generate.params import SnapshotParams
from allocator.generate.shapes import generate_bound, generate_nvl72, generate_odd, generate_ones

Family = Callable[[SnapshotParams, int], Snapshot]

FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        "mixed": generate_mixed,
        "odd": generate_odd,
        "bound": generate_bound,
        "ones": generate_ones,
        "giant": generate_giant,
        "hopeless": generate_hopeless,
        "victims": generate_victims,
        "queue": generate_queue,
        "nvl72": generate_nvl72,
        "fleet": generate_fleet,
        "drain": generate_drain,
        "contract": generate_contract,
    }
)


def generate_snapshot(
    *,
    gpus: int | None = None,
    seed: int = 0,
    pools: int | None = None,
    queue: float | None = None,
    leaves: int | None = None,
    history: bool = True,
    family: str = "mixed",
) -> Snapshot:
    """A synthetic snapshot in canonical order; the same arguments give the same snapshot.

    Parameters
    ----------
    gpus
        Installed GPUs; None: the size that belongs to the family (1,024 for `mixed`).
    seed
        Seed of PCG64, not negative.
    pools
        1 or 3.
    queue
        Running plus waiting demand as a multiple of the installed GPUs (2.5 for `mixed`).
    leaves
        Researchers in the budget tree (60 at 1,024 GPUs, 640 at 102,400).
    history
        False for a cold start: no usage records.
    family
        A name of `FAMILIES`.
    """
    if family not in FAMILIES:
        known = ", ".join(FAMILIES)
        raise SnapshotError([Issue(path="family", problem=f"no family is called {family!r}", remedy=f"give one of {known}")])
    if seed < 0:
        raise SnapshotError([Issue(path="seed", problem=f"seed {seed} is negative", remedy="give 0 or more")])
    params = SnapshotParams(gpus=gpus, pools=pools, queue=queue, leaves=leaves, history=history)
    return FAMILIES[family](params, seed)
