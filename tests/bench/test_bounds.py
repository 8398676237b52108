"""Known bounds of generated instances hold: no answer beats them, and no bound is worse than an answer that is known."""

from __future__ import annotations

from pathlib import Path

import pytest

from allocator.bench import Catalogue
from allocator.bench.instances import Known
from allocator.bench.record import read_record
from allocator.engine import allocate
from allocator.verify import verify
from allocator.wire import decode_snapshot, snapshot_digest

INSTANCES = Path(__file__).resolve().parents[2] / "instances"
KNOWN = read_record(INSTANCES / "bounds.csv")
QUICK = [known for known in KNOWN if known.instance in ("mixed-256", "hopeless-512", "nvl72-576", "drain-512")]


def label(known: Known) -> str:
    return f"{known.instance}-{known.seed}"


def test_every_record_is_of_an_instance_and_in_order() -> None:
    catalogue = Catalogue.open(INSTANCES)
    for known in KNOWN:
        catalogue.generated(known.instance)
        assert known.lower_bound <= known.upper_bound
    assert [(known.instance, known.seed) for known in KNOWN] == sorted((known.instance, known.seed) for known in KNOWN)
    assert QUICK


@pytest.mark.parametrize("known", QUICK, ids=label)
def test_bounds_hold(known: Known) -> None:
    snapshot = decode_snapshot(Catalogue.open(INSTANCES).instance(known.instance, known.seed).read())
    assert snapshot_digest(snapshot) == known.digest, "the generator has changed: run allocator bench small --record"
    decision = allocate(snapshot, time_limit=30)
    assert verify(snapshot, decision).broken == ()
    assert decision.solver.objective >= known.lower_bound
    assert decision.solver.bound is None or decision.solver.bound <= known.upper_bound
