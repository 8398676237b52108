"""The family `mixed`, the one that looks like an ordinary afternoon, and its larger sisters."""

from __future__ import annotations

from dataclasses import replace

from allocator.domain import Snapshot
from allocator.generate.disturb import drain_tenth
from allocator.generate.fleet import build_cluster, split_nodes
from allocator.generate.params import SnapshotParams
from allocator.generate.populate import generate_on
from allocator.generate.recipe import Recipe

DEFAULT_GPUS = 1024
FLEET_GPUS = 12_800 * 8
FLEET_LEAVES = 3_000


def hgx(params: SnapshotParams, seed: int, recipe: Recipe, gpus: int = DEFAULT_GPUS) -> Snapshot:
    """A snapshot on HGX nodes; `gpus` is the size of the family where none is asked for."""
    size = gpus if params.gpus is None else params.gpus
    return generate_on(build_cluster(split_nodes(size, 1 if params.pools is None else params.pools)), params, seed, recipe)


def generate_mixed(params: SnapshotParams, seed: int) -> Snapshot:
    """A nearly full cluster, work of all classes in every state, a queue of 2.5 times the cluster; 1,024 GPUs."""
    return hgx(params, seed, Recipe())


def generate_fleet(params: SnapshotParams, seed: int) -> Snapshot:
    """The same for 12,800 nodes in three pools, with 3,000 researchers."""
    pools = 3 if params.pools is None else params.pools
    leaves = FLEET_LEAVES if params.leaves is None else params.leaves
    return hgx(replace(params, pools=pools, leaves=leaves), seed, Recipe(), FLEET_GPUS)


def generate_drain(params: SnapshotParams, seed: int) -> Snapshot:
    """The same with one node in ten leaving, at staggered deadlines, some of which have passed."""
    return hgx(params, seed, Recipe(disturb=drain_tenth))
