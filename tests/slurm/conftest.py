"""The real Slurm: installed where it is missing, started once for all tests of this folder, whichever process runs them."""

from __future__ import annotations

import hashlib
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.debian import only_one
from tests.slurm.cluster import SlurmCluster, install, shared

PLACE = Path(tempfile.gettempdir()) / f"slurm-{hashlib.sha256(str(Path(__file__)).encode()).hexdigest()[:8]}"
"""A folder for each checkout; short, since the paths of sockets are bounded."""


@pytest.fixture(scope="session")
def shared_cluster() -> Iterator[SlurmCluster]:
    """Sixteen nodes with accounting, and two projects of equal shares."""
    reason = install()
    if reason is not None:
        warnings.warn(f"THE TESTS ON A REAL SLURM DO NOT RUN: {reason}", stacklevel=1)
        pytest.skip(f"no real Slurm: {reason}")
    with shared(PLACE, lambda cluster: cluster.add_accounts({"nlp": 50, "vision": 50})) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared_cluster: SlurmCluster) -> Iterator[SlurmCluster]:
    """The cluster, for one test at a time: every test leaves it empty."""
    with only_one(PLACE / "turn"):
        yield shared_cluster
