"""The real Slurm: installed where it is missing, started once, for the tests of this folder that ask for it."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.debian import only_one
from tests.slurm.cluster import SlurmCluster, install

LOCK = Path(tempfile.gettempdir()) / "gpu-epoch-allocator-slurm.lock"


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    """Sixteen nodes with accounting, and two projects of equal shares. Clusters of several workers take turns: they share
    the two or three cores of a host, and 16 nodes are enough."""
    reason = install()
    if reason is not None:
        warnings.warn(f"THE TESTS ON A REAL SLURM DO NOT RUN: {reason}", stacklevel=1)
        pytest.skip(f"no real Slurm: {reason}")
    with only_one(LOCK), tempfile.TemporaryDirectory(prefix="slurm-") as folder:
        cluster = SlurmCluster(Path(folder))
        cluster.up()
        try:
            cluster.add_accounts({"nlp": 50, "vision": 50})
            yield cluster
        finally:
            cluster.down()
