"""Decisions: units, order, and what is optional."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from allocator.domain import (
    AllocationRow,
    BrokenContract,
    Decision,
    DrainRow,
    Lapse,
    Preemption,
    Promotion,
    Reason,
    Renewal,
    Reservation,
    SnapshotError,
    SolverReport,
    Start,
    StopReason,
    WaitingRow,
)
from allocator.wire import decision_schema, decode_decision, decode_snapshot, encode_decision
from tests.wire.documents import document, encoded

SOLVER = SolverReport(
    rung="exact",
    engine="cp-sat",
    status="optimal",
    objective=12_345,
    bound=12_000,
    gap=0.25,
    terms={"unfairness": 5, "idle": 12_340},
    seed=1,
)

FULL = Decision(
    now=1_000,
    snapshot="sha256:" + "0" * 64,
    solver=replace(SOLVER, notes=("milp: no time left",)),
    starts=(
        Start(workload="a", placement={"n1": 2, "n2": 1}, charged=True, protected_until=2_000, express=True),
        Start(workload="b", placement={"n1": 1}, charged=False, protected_until=None),
    ),
    preemptions=(Preemption(workload="c", reason=StopReason.SHARE, beneficiaries=("a",), lost_gpu_seconds=9, stop_by=1_120),),
    renewals=(Renewal(workload="d", protected_until=5_000),),
    promotions=(Promotion(workload="e", protected_until=5_000),),
    reservations=(
        Reservation(workload="f", pool="h100", domain=("east",), nodes=4, start=2_000, eligible_since=900, bound=9_000),
    ),
    drains=(DrainRow(node="n9", drained=False, free_at=None, waits_for=("g",)),),
    waiting=(
        WaitingRow(workload="c", reason=Reason.NO_CAPACITY, not_before=None, never=False, detail="full"),
        WaitingRow(
            workload="f", reason=Reason.BLOCKED_BY_PROTECTION, not_before=2_000, never=False, detail="x", blockers=("g",),
            eta=3_000, entitled_since=900,
        ),
    ),
    lapsing=(Lapse(workload="h", at=1_100, renewable=True),),
    contract_broken=(BrokenContract(workload="i", promised=4_000, cause="node_down"),),
    allocations=(
        AllocationRow(
            id="eval", pool="b200", share=0.1, budget_gpu_seconds=None, usage_gpu_seconds=7, entitled_milli=41_501,
            gpus_before=1, gpus_after=2,
        ),
        AllocationRow(
            id="eval", pool="h100", share=0.1, budget_gpu_seconds=99, usage_gpu_seconds=7, entitled_milli=8_000,
            gpus_before=1, gpus_after=2,
        ),
    ),
    warnings=("all shares are zero",),
    timing={"total_seconds": 1.5, "entitle": 0.25, "greedy": 0.5},
)  # fmt: skip


def written(decision: Decision) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(encode_decision(decision))
    return value


@pytest.mark.parametrize("decision", [FULL, Decision(now=0, snapshot="sha256:x", solver=replace(SOLVER, bound=None, gap=None))])
def test_round_trip(decision: Decision) -> None:
    data = encode_decision(decision)
    assert decode_decision(data) == decision
    assert encode_decision(decode_decision(data)) == data
    Draft202012Validator(decision_schema()).validate(json.loads(data))


@given(st.integers(-(10**15), 10**15), st.integers(0, 10**12))
def test_thousandths_survive(objective: int, entitled: int) -> None:
    row = replace(FULL.allocations[0], entitled_milli=entitled)
    solver = replace(SOLVER, objective=objective, bound=objective, terms={"idle": objective})
    decision = replace(FULL, solver=solver, allocations=(row,))
    assert decode_decision(encode_decision(decision)) == decision


def test_units_and_keys() -> None:
    value = written(FULL)
    assert list(value) == [
        "version", "now", "snapshot", "starts", "preemptions", "renewals", "promotions", "reservations", "drains", "waiting",
        "lapsing", "contract_broken", "allocations", "warnings", "solver", "timing",
    ]  # fmt: skip
    assert value["solver"]["objective"] == 12.345
    assert value["solver"]["bound"] == 12.0
    assert value["solver"]["terms"] == {"idle": 12.34, "unfairness": 0.005}
    assert [row["entitled_gpus"] for row in value["allocations"]] == [41.501, 8.0]
    assert value["timing"] == {"total_seconds": 1.5, "steps": {"entitle": 0.25, "greedy": 0.5}}


def test_what_may_be_absent_and_what_is_null() -> None:
    value = written(replace(FULL, warnings=(), solver=SOLVER))
    assert "warnings" not in value
    assert "notes" not in value["solver"]
    assert value["starts"][0]["express"] is True
    assert value["starts"][1] == {"workload": "b", "placement": {"n1": 1}, "charged": False, "protected_until": None}
    assert value["waiting"][0]["not_before"] is None
    assert "eta" not in value["waiting"][0]
    assert value["drains"][0]["free_at"] is None
    assert value["allocations"][0]["budget_gpu_seconds"] is None


def test_rows_are_sorted() -> None:
    backwards = replace(
        FULL, starts=FULL.starts[::-1], waiting=FULL.waiting[::-1], allocations=FULL.allocations[::-1], timing={}
    )
    assert encode_decision(backwards) == encode_decision(replace(FULL, timing={}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 3}, "$.version: 3 is not valid here; give 1"),
        ({"start": []}, '$.start: unknown field "start"; did you mean "starts"?'),
        ({"starts": [{"workload": "a"}]}, "$.starts[0].placement: the field is missing"),
        ({"lapsing": [{"workload": "a", "at": 1, "renewable": "no"}]}, '$.lapsing[0].renewable: "no" is not valid here'),
        ({"contract_broken": [{"workload": "a", "promised": 1, "cause": "whim"}]}, '$.contract_broken[0].cause: "whim" is not'),
    ],
)
def test_bad_decisions(change: dict[str, Any], message: str) -> None:
    with pytest.raises(SnapshotError) as caught:
        decode_decision(json.dumps(written(FULL) | change).encode())
    assert any(str(issue).startswith(message) for issue in caught.value.issues)


def test_a_snapshot_in_place_of_a_decision_is_called_one_and_the_other_way_round() -> None:
    for read, data, message in (
        (decode_decision, encoded(document()), "$: this is a snapshot, not a decision; give the decision; "),
        (decode_snapshot, encode_decision(FULL), "$: this is a decision, not a snapshot; give the snapshot; "),
    ):
        with pytest.raises(SnapshotError) as caught:
            read(data)
        assert [str(issue).startswith(message) for issue in caught.value.issues] == [True]


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"now": NaN}', b'{"now": 5', b"[" * 10**6])
def test_no_decision_at_all(data: bytes) -> None:
    with pytest.raises(SnapshotError):
        decode_decision(data)
