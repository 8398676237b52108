"""The sliding window kept up to date is the window counted anew."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from allocator.domain import Policy, Snapshot, UsageRecord
from allocator.entitlement.tree import build_tree
from allocator.entitlement.usage import window_usage
from allocator.replay.usage import UsageWindow
from tests.builders import budget, nodes, snapshot

BUDGETS = [budget("p"), budget("a", parent="p"), budget("b", parent="p")]


def counted(policy: Policy, records: tuple[UsageRecord, ...], now: int) -> list[list[list[int]]]:
    snap: Snapshot = replace(snapshot(nodes(1), BUDGETS, [], usage=list(records), now=now), policy=policy)
    tree = build_tree(snap.budgets, ("h100",))
    return [table.tolist() for table in window_usage(snap, tree, ("h100",), now)]


@st.composite
def histories(draw: st.DrawFn) -> list[UsageRecord]:
    found, end = [], 1_000_000
    for number in range(draw(st.integers(0, 12))):
        end += draw(st.integers(0, 6000))
        length = draw(st.integers(0, 9000))
        found.append(
            UsageRecord(
                id=f"r{number}", allocation=draw(st.sampled_from(["a", "b", "p"])), pool="h100", gpus=draw(st.integers(1, 9)),
                start=end - length, end=end, charged=draw(st.booleans()),
            )
        )  # fmt: skip
    return found


@given(history=histories(), window=st.sampled_from([600, 7000, 20_000]), half_life=st.sampled_from([None, 5000]))
def test_the_sums_are_those_of_the_records(history: list[UsageRecord], window: int, half_life: int | None) -> None:
    policy = Policy(window=window, half_life=half_life)
    kept = UsageWindow(policy, [])
    for index, record in enumerate(history):
        kept.add(record)
        for now in (record.end, record.end + 777):
            if index + 1 == len(history) or now <= history[index + 1].end:
                assert counted(policy, kept.records(now), now) == counted(policy, tuple(history[: index + 1]), now)


def test_sums_that_stay_are_the_same_objects() -> None:
    kept = UsageWindow(Policy(), [])
    kept.add(UsageRecord(allocation="a", pool="h100", gpus=8, start=7200, end=7300))
    (first,), (second,) = kept.records(7400), kept.records(7500)
    assert first is second
    assert (first.start, first.end, first.gpus) == (7199, 7200, 800)
