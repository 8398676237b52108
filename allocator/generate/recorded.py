"""Traces from recorded epochs: what production saw, as something that other policies can be played against.

Cluster, budgets and what was submitted are known. So is when work ran, but how much of it is left is not: what is estimated
is counted in the notes of the trace.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from statistics import median_low
from typing import Any

from allocator.domain import Allocation, Cluster, Decision, Issue, Snapshot, SnapshotError, UsageRecord
from allocator.domain.trace import Revision, Trace
from allocator.generate.files import refuse
from allocator.generate.recorded_nodes import NodeHistory
from allocator.generate.recorded_runs import WorkHistory
from allocator.generate.recorded_work import jobs_of
from allocator.record import RecordedEpoch, recorded_from
from allocator.transition import finish
from allocator.wire import load_decision, load_snapshot
from allocator.wire.traces import canonical_trace

_SAID = {
    "going": "{} runs were going at the start: their jobs wait there, and what is left of their work is played",
    "estimated_ends": "{} of {runs} runs have no usage record of their own: they end in the first epoch without them",
    "requeued": "{} runs came back into the queue without a decision: what was lost is estimated by their checkpoints",
    "unended": "{} jobs had not ended: the rest of their work is estimated",
    "rejected": "{} workloads left out: they asked for what does not exist",
    "withdrawn": "{} workloads left out: they went away before they ran",
    "homeless": "{} workloads left out: their allocation stands in no budget tree",
    "same_instant": "{} epochs left out: another one has the same instant",
    "policies": "the policy changed {} times: the first one is played",
    "resized": "{} nodes changed their size: the largest is played",
    "called_off": "{} maintenances were called off before their deadline",
}
"""What is told of what there is more than none of."""


@dataclass(slots=True)
class _Past:
    """What has been seen up to an epoch."""

    first: Snapshot
    nodes: NodeHistory
    work: WorkHistory
    revisions: list[Revision] = field(default_factory=list)
    instants: list[int] = field(default_factory=list)
    policies: int = 0


def trace_from_record(place: Path, on_epoch: Callable[[int, int], None] = lambda done, total: None) -> Trace:
    """The trace of a folder of recorded epochs, or of those from one of its files on; its notes tell what is estimated.

    Parameters
    ----------
    place
        What `--record` has written.
    on_epoch
        Is told how many of how many epochs have been read.

    Raises
    ------
    SnapshotError
        Where there are fewer than two epochs, a file is damaged or another one than its name says, or two epochs are not of one
        cluster.
    """
    found = recorded_from(place)
    epochs = [one for number, one in enumerate(found) if not number or one.now != found[number - 1].now]
    if len(epochs) < 2:
        raise refuse(str(place), f"has {len(epochs)} recorded epochs", "a replay needs two or more: record for some time")
    past = _past_of(_read_all(epochs, on_epoch))
    return _trace(_name_of(place), past, Counter(same_instant=len(found) - len(epochs)))


def _past_of(epochs: Iterator[tuple[RecordedEpoch, Snapshot, Decision]]) -> _Past:
    """Look at one epoch after the other."""
    past: _Past | None = None
    last: Snapshot | None = None
    for epoch, snapshot, decision in epochs:
        if past is None or last is None:
            past = _Past(snapshot, NodeHistory(snapshot.now), WorkHistory(snapshot.now))
        else:
            _refuse_other_cluster(epoch, last.cluster, snapshot.cluster)
            past.policies += snapshot.policy != last.policy
            if snapshot.budgets != last.budgets:
                past.revisions.append(Revision(at=snapshot.now, budgets=snapshot.budgets))
        past.instants.append(snapshot.now)
        past.nodes.see(snapshot.cluster, snapshot.now)
        past.work.see(snapshot, decision)
        last = snapshot
    assert past is not None, "no epochs"
    return past


def _trace(name: str, past: _Past, count: Counter[str]) -> Trace:
    first, start, end = past.first, past.instants[0], past.instants[-1]
    past.nodes.close(end)
    trees = (first.budgets, *(revision.budgets for revision in past.revisions))
    jobs = jobs_of(past.work, start, end, {leaf for tree in trees for leaf in _leaves(tree)}, count)
    count.update(policies=past.policies, resized=len(past.nodes.changed), called_off=past.nodes.called_off)
    trace = Trace(
        name=name,
        start=start,
        end=end,
        cluster=replace(first.cluster, nodes=tuple(past.nodes.nodes.values())),
        budgets=first.budgets,
        jobs=tuple(jobs),
        policy=first.policy,
        usage=_history(first),
        outages=tuple(past.nodes.outages),
        maintenance=tuple(past.nodes.maintenance),
        revisions=tuple(past.revisions),
        notes=(_told(past.instants, len(jobs)), *_notes(count)),
    )
    return canonical_trace(trace)


def _read_all(
    epochs: Sequence[RecordedEpoch], on_epoch: Callable[[int, int], None]
) -> Iterator[tuple[RecordedEpoch, Snapshot, Decision]]:
    for number, epoch in enumerate(epochs, start=1):
        snapshot, decision = _load(load_snapshot, epoch.snapshot), _load(load_decision, epoch.decision)
        _refuse_other_pair(epoch, snapshot, decision)
        yield epoch, snapshot, decision
        on_epoch(number, len(epochs))


def _load(load: Callable[[Path], Any], path: Path) -> Any:
    """A document; every issue begins with the name of its file."""
    try:
        return load(path)
    except SnapshotError as error:
        issues = [replace(issue, path=f"{path}: {issue.path}") for issue in error.issues]
        gone = Issue(path=str(path), problem="is damaged or no recorded epoch", remedy="remove it together with its partner")
        raise SnapshotError([*issues, gone]) from error


def _refuse_other_pair(epoch: RecordedEpoch, snapshot: Snapshot, decision: Decision) -> None:
    """Ensures that name, snapshot and decision are of one instant, and of the same work."""
    remedy = "remove the pair: its files do not belong together"
    for path, now in ((epoch.snapshot, snapshot.now), (epoch.decision, decision.now)):
        if now != epoch.now:
            raise refuse(str(path), f"its name says {_at(epoch.now)}, it is of {_at(now)}", remedy)
    named = {row.workload for row in decision.starts} | {row.workload for row in decision.preemptions}
    if unknown := sorted(named - {work.id for work in snapshot.workloads}):
        raise refuse(str(epoch.decision), f"{unknown[0]} is not in {epoch.snapshot.name}", remedy)


def _refuse_other_cluster(epoch: RecordedEpoch, last: Cluster, cluster: Cluster) -> None:
    """Ensures that two epochs can be of one cluster."""
    if cluster.levels != last.levels:
        remedy = "give this file, to replay from there on"
        raise refuse(str(epoch.snapshot), f"the levels are {cluster.levels}, and were {last.levels}", remedy)
    if not {node.name for node in cluster.nodes} & {node.name for node in last.nodes}:
        problem = "has no node in common with the epoch before"
        raise refuse(str(epoch.snapshot), problem, "record each cluster in a folder of its own")


def _history(first: Snapshot) -> tuple[UsageRecord, ...]:
    """Usage up to the start: the records, and what runs then have taken. What several pieces of one record have in common
    counts once; only the first keeps the id."""
    running = [work.id for work in first.workloads if work.run is not None]
    edge: dict[str, int] = {}
    found = []
    for record in sorted(finish(first, *running).usage, key=lambda one: (one.start, one.end)):
        begin, end = record.start, min(record.end, first.now)
        seen = record.id is not None and record.id in edge
        if record.id is not None:
            begin = max(begin, edge.get(record.id, begin))
            edge[record.id] = max(end, begin)
        if begin < end:
            found.append(replace(record, start=begin, end=end, id=None if seen else record.id))
    return tuple(found)


def _leaves(tree: Iterable[Allocation]) -> set[str]:
    return {vertex.id for vertex in tree} - {vertex.parent for vertex in tree if vertex.parent is not None}


def _told(instants: Sequence[int], jobs: int) -> str:
    gaps = [after - before for before, after in pairwise(instants)]
    return (
        f"{len(instants)} recorded epochs from {_at(instants[0])} to {_at(instants[-1])}, {median_low(gaps)} s apart, "
        f"at most {max(gaps)} s; {jobs} jobs"
    )


def _notes(count: Counter[str]) -> Iterator[str]:
    return (said.format(count[key], runs=count["runs"]) for key, said in _SAID.items() if count[key])


def _at(instant: int) -> str:
    return datetime.fromtimestamp(instant, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _name_of(place: Path) -> str:
    folder = place if place.is_dir() else place.parent
    return folder.resolve().name or "record"
