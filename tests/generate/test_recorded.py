"""Traces from recorded epochs: what is known comes back, what is not is estimated and told, and damaged records are refused."""

from __future__ import annotations

import gzip
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from allocator.domain import NodeState, Snapshot, SnapshotError, UsageRecord, Workload
from allocator.domain.trace import Job, Maintenance, Outage, Revision, Trace
from allocator.entitlement.tree import build_tree
from allocator.entitlement.usage import window_usage
from allocator.generate.any_trace import TraceRecipe, make_trace
from allocator.generate.recorded import trace_from_record
from allocator.record import recorded
from allocator.wire import decode_trace, encode_trace, load_snapshot
from tests.builders import HOUR, budget, node
from tests.generate.production import POLICY, START, TICK, Production, job


def some_work(seed: int, count: int = 14) -> list[tuple[Workload, int]]:
    """Work of all kinds for two nodes and two budgets, more than fits at once."""
    rng = random.Random(seed)
    return [
        (
            job(
                f"j{number}",
                rng.choice("ab"),
                at=rng.randrange(1800),
                gpus=rng.choice([2, 4, 8]),
                min_runtime=rng.choice([0, 300, 300]),
                resumable=rng.random() < 0.6,
            ),
            rng.randrange(20, 1500),
        )
        for number in range(count)
    ]


def by_id(trace: Trace) -> dict[str, Job]:
    return {one.workload.id: one for one in trace.jobs}


def notes_of(trace: Trace) -> str:
    return "; ".join(trace.notes)


def pure(work: Workload) -> Workload:
    return replace(work, run=None, stopped=None, entitled_since=None, preempted=0)


@pytest.mark.parametrize("seed", [2, 5])
def test_work_and_what_was_asked_for_come_back(tmp_path: Path, seed: int) -> None:
    submitted = some_work(seed)
    production = Production(tmp_path, submitted)
    production.run(65)
    assert any(decision.preemptions for decision in production.decisions)
    trace = trace_from_record(tmp_path)
    jobs = by_id(trace)
    assert {key: one.workload for key, one in jobs.items()} == {work.id: work for work, _ in submitted}
    for key, truth in production.truths.items():
        if truth.done == truth.work:
            assert jobs[key].work == truth.work
        else:
            assert jobs[key].work > truth.done
    assert (trace.start, trace.end, trace.name) == (START, START + 64 * TICK, tmp_path.name)
    assert (trace.budgets, trace.policy, trace.usage, trace.revisions) == ((budget("a"), budget("b")), POLICY, (), ())
    assert "usage record of their own" not in notes_of(trace)
    assert encode_trace(trace) == encode_trace(trace_from_record(tmp_path))
    assert decode_trace(encode_trace(trace)) == trace


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", range(100, 200))
def test_whatever_ended_took_what_it_took(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    submitted = [
        (replace(work, min_runtime=rng.choice([0, 300, 900]), gpus_per_task=8, tasks=rng.choice([1, 1, 2])), length)
        for work, length in some_work(seed, 10)
    ]
    production = Production(tmp_path, submitted)
    production.run(60, before=rng.choice([0, 0, 15]))
    trace = trace_from_record(tmp_path)
    for key, one in by_id(trace).items():
        truth = production.truths[key]
        if truth.done < truth.work:
            assert one.work > 0
        elif trace.start == START:
            assert one.work == truth.work
        else:
            assert one.work <= truth.work


def test_budgets_nodes_and_policy_that_change_come_back(tmp_path: Path) -> None:
    def state(name: str, **fields: Any) -> Any:
        def change(snapshot: Snapshot) -> Snapshot:
            nodes = tuple(replace(one, **fields) if one.name == name else one for one in snapshot.cluster.nodes)
            return replace(snapshot, cluster=replace(snapshot.cluster, nodes=nodes))

        return change

    tree = (budget("a", 3), budget("b"))
    changes = {
        2: lambda snapshot: replace(snapshot, budgets=tree),
        3: state("n1", state=NodeState.DOWN, reason="xid 79"),
        5: state("n1", state=NodeState.UP, reason=None),
        6: state("n2", state=NodeState.DRAIN),
        8: state("n2", state=NodeState.UP),
        9: lambda snapshot: replace(snapshot, policy=replace(POLICY, notice=10)),
    }
    Production(tmp_path, [(job("x"), 60)], changes).run(11)
    trace = trace_from_record(tmp_path)
    assert trace.revisions == (Revision(at=START + 2 * TICK, budgets=tree),)
    assert trace.outages == (Outage(node="n1", start=START + 3 * TICK, end=START + 5 * TICK, reason="xid 79"),)
    (drain,) = trace.maintenance
    assert drain == Maintenance(node="n2", announced=START + 6 * TICK, deadline=None, end=START + 8 * TICK, drain=True)
    assert trace.policy == POLICY
    assert {one.state for one in trace.cluster.nodes} == {NodeState.UP}
    assert "the policy changed 1 times: the first one is played" in trace.notes
    assert decode_trace(encode_trace(trace)) == trace


def test_a_record_that_begins_in_the_middle_has_the_usage_so_far_and_what_is_left(tmp_path: Path) -> None:
    past = UsageRecord(id="old", allocation="b", pool="h100", gpus=8, start=START - HOUR, end=START)
    work = [(job("long"), 3000), (job("short", "b"), 900), (job("later", at=1500), 200)]
    Production(tmp_path, work, usage=(past,)).run(42, before=10)
    trace = trace_from_record(tmp_path)
    begin = trace.start
    assert begin == START + 10 * TICK
    assert {key: one.work for key, one in by_id(trace).items()} == {"long": 3000 - 600, "short": 300, "later": 200}
    assert "2 runs were going at the start" in notes_of(trace)
    first = load_snapshot(next(recorded(tmp_path)).snapshot)
    without_runs = replace(first, workloads=(), usage=trace.usage)
    tree = build_tree(first.budgets, ("h100",))
    for before, after in zip(
        window_usage(first, tree, ["h100"], begin), window_usage(without_runs, tree, ["h100"], begin), strict=True
    ):
        assert before.tolist() == after.tolist()
    assert all(record.end <= begin for record in trace.usage)


def test_without_usage_records_ends_are_estimated_and_told(tmp_path: Path) -> None:
    production = Production(tmp_path, [(job("x"), 130), (job("y", "b", at=90), 10)], forgetful=True)
    production.run(8)
    trace = trace_from_record(tmp_path)
    # x ended at 130 and was last seen at 120; y came at 90, was started at 120 and never seen running
    assert {key: one.work for key, one in by_id(trace).items()} == {"x": 180, "y": 60}
    assert "2 of 2 runs have no usage record of their own" in notes_of(trace)


def test_what_cannot_be_played_is_left_out_and_counted(tmp_path: Path) -> None:
    submitted = [(job("x"), 100), (job("fool", "nowhere"), 100), (job("shy", "b", gpus=16, at=60), 100)]
    full = [(job(f"full{number}", "b"), 3000) for number in range(2)]
    Production(tmp_path, [*submitted, *full], withdrawn={4: ["shy"]}).run(6)
    trace = trace_from_record(tmp_path)
    assert set(by_id(trace)) == {"x", "full0", "full1"}
    assert "1 workloads left out: they asked for what does not exist" in trace.notes
    assert "1 workloads left out: they went away before they ran" in trace.notes


def test_one_file_is_where_it_begins(tmp_path: Path) -> None:
    Production(tmp_path, [(job("x"), 100), (job("y", at=300), 100)]).run(10)
    epochs = list(recorded(tmp_path))
    trace = trace_from_record(epochs[4].snapshot)
    assert (trace.start, trace.end) == (epochs[4].now, epochs[-1].now)
    assert set(by_id(trace)) == {"y"}
    assert trace_from_record(epochs[4].decision) == trace
    assert make_trace(TraceRecipe(log=epochs[4].snapshot)) == trace
    with pytest.raises(SnapshotError, match=r"load: has no effect beside recorded epochs"):
        make_trace(TraceRecipe(log=tmp_path, load=0.9))


def test_of_two_epochs_of_one_instant_one_is_played(tmp_path: Path) -> None:
    Production(tmp_path, [(job("x"), 100)]).run(4)
    trace = trace_from_record(tmp_path)
    one = list(recorded(tmp_path))[2]
    for path in (one.snapshot, one.decision):
        stem, _, rest = path.name.partition("-")
        (tmp_path / f"{stem}-ffffffffffff.{rest.partition('.')[2]}").write_bytes(path.read_bytes())
    again = trace_from_record(tmp_path)
    assert again.jobs == trace.jobs
    assert "1 epochs left out: another one has the same instant" in again.notes


def test_it_tells_how_far_it_is(tmp_path: Path) -> None:
    Production(tmp_path, []).run(3)
    told: list[tuple[int, int]] = []
    trace_from_record(tmp_path, lambda done, total: told.append((done, total)))
    assert told == [(1, 3), (2, 3), (3, 3)]


def rewrite(path: Path, **fields: Any) -> None:
    """Change fields of a document."""
    document = json.loads(gzip.decompress(path.read_bytes()))
    path.write_bytes(gzip.compress(json.dumps({**document, **fields}).encode()))


def test_too_few_epochs(tmp_path: Path) -> None:
    with pytest.raises(SnapshotError, match="has 0 recorded epochs; a replay needs two or more"):
        trace_from_record(tmp_path)
    Production(tmp_path, []).run(2)
    with pytest.raises(SnapshotError, match="has 1 recorded epochs"):
        trace_from_record(list(recorded(tmp_path))[1].snapshot)


@pytest.mark.parametrize("kind", ["snapshot", "decision"])
def test_a_damaged_file_is_named(tmp_path: Path, kind: str) -> None:
    Production(tmp_path, []).run(3)
    path: Path = getattr(list(recorded(tmp_path))[1], kind)
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(SnapshotError) as caught:
        trace_from_record(tmp_path)
    assert [issue.path.partition(": ")[0] for issue in caught.value.issues] == [str(path)] * 2
    assert "remove it together with its partner" in str(caught.value)


@pytest.mark.parametrize("kind", ["snapshot", "decision"])
def test_files_that_do_not_belong_together_are_refused(tmp_path: Path, kind: str) -> None:
    Production(tmp_path, []).run(3)
    path: Path = getattr(list(recorded(tmp_path))[1], kind)
    rewrite(path, now=START + 7)
    with pytest.raises(SnapshotError, match="its name says 1970-01-12 13:01:00Z, it is of 1970-01-12 13:00:07Z") as caught:
        trace_from_record(tmp_path)
    assert caught.value.issues[0].path == str(path)


def test_a_decision_about_other_work_is_refused(tmp_path: Path) -> None:
    Production(tmp_path, []).run(3)
    start = {"workload": "ghost", "placement": {"n1": 1}, "charged": True, "protected_until": START}
    rewrite(list(recorded(tmp_path))[1].decision, starts=[start])
    with pytest.raises(SnapshotError, match="ghost is not in"):
        trace_from_record(tmp_path)


def test_two_clusters_in_one_folder_are_refused(tmp_path: Path) -> None:
    def other(snapshot: Snapshot) -> Snapshot:
        return replace(snapshot, cluster=replace(snapshot.cluster, nodes=(node("m1"),)))

    def deeper(snapshot: Snapshot) -> Snapshot:
        return replace(snapshot, cluster=replace(snapshot.cluster, levels=("site", "rack", "node")))

    Production(tmp_path / "other", [], {2: other}).run(4)
    with pytest.raises(SnapshotError, match="has no node in common with the epoch before"):
        trace_from_record(tmp_path / "other")
    Production(tmp_path / "deeper", [], {2: deeper}).run(4)
    with pytest.raises(SnapshotError, match="give this file, to replay from there on") as caught:
        trace_from_record(tmp_path / "deeper")
    path = Path(caught.value.issues[0].path)
    assert trace_from_record(path).start == START + 2 * TICK


def test_pieces_of_one_record_count_once(tmp_path: Path) -> None:
    piece = UsageRecord(id="r", allocation="a", pool="h100", gpus=8, start=START - 100, end=START - 40)
    pieces = (
        piece,
        replace(piece, start=START - 60, end=START - 20),
        replace(piece, start=START - 90, end=START - 50),
        replace(piece, id=None, start=START - 60, end=START + 60),
    )
    Production(tmp_path, [], usage=pieces).run(2)
    found = [(record.id, record.start - START, record.end - START) for record in trace_from_record(tmp_path).usage]
    assert found == [("r", -100, -40), (None, -60, 0), (None, -40, -20)]
