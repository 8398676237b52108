"""Carries out a decision, by the rules of `allocator.transition`, on the work that it touches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from allocator.domain import Decision, Preemption, Reason, Snapshot, StopReason, Workload
from allocator.replay.errors import broken
from allocator.replay.lives import Outcome
from allocator.replay.world import World
from allocator.transition import apply
from allocator.verify.physical import physical_violations


def carry_out(world: World, decision: Decision, tick: int) -> None:
    """Do what a decision says, at once; the work is then as the next tick will see it.

    Raises
    ------
    ReplayError
        If the decision is physically impossible.
    """
    _refuse_impossible(world, decision)
    rest = _without_idle_rows(world, decision)
    keys = _named(rest)
    if keys or world.reservations:
        world.reservations = _act(world, keys, rest, tick).reservations


def clear_by_hand(world: World, decision: Decision, tick: int) -> int:
    """A person stops what the policy has left on nodes whose drain deadline has come: how many nodes needed one."""
    nodes = [world.trace.maintenance[number].node for number in world.due]
    world.due.clear()
    left = {key: node for node in nodes for key in world.fleet.residents[node]}
    stops = tuple(
        Preemption(workload=key, reason=StopReason.DRAIN, beneficiaries=(), lost_gpu_seconds=0, stop_by=world.now)
        for key in left
    )
    if stops:
        bare = Decision(now=world.now, snapshot="", solver=decision.solver, preemptions=stops)
        _act(world, _named(bare), bare, tick, how=Outcome.PERSON)
    return len(set(left.values()))


def _act(world: World, keys: Iterable[str], decision: Decision, tick: int, how: str | None = None) -> Snapshot:
    """Apply the decision to what it names, and bring books, nodes and meters in line: the result of `apply`."""
    before = {key: world.roster.works[key] for key in keys}
    small = world.small_snapshot(tuple(before.values()), decision.starts)
    gone = [row.workload for row in decision.preemptions if _is_done(world, row.workload)]
    for row in decision.preemptions:
        world.end_run(before[row.workload], how or row.reason, notice=not _is_dead(world, row.workload))
        world.lives[row.workload].stops += 1
    after = apply(small, decision, tick)
    for record in after.usage:
        world.usage.add(record)
    for work in after.workloads:
        seen = _without_checkpoint(work)
        if seen != before[work.id]:
            world.swap(before[work.id], seen)
    for start in decision.starts:
        if start.workload not in gone:
            world.begin_run(world.roster.works[start.workload])
    for key in gone:
        world.swap(world.roster.works[key], None)
        world.retire(key, world.lives[key].ending)
    return after


def _is_done(world: World, key: str) -> bool:
    """Whether it is a session that has done its work and only holds its GPUs."""
    attempt = world.lives[key].attempt
    return attempt is not None and attempt.done_at is not None


def _is_dead(world: World, key: str) -> bool:
    """Whether a node of the run has died under it, so that there is no last checkpoint."""
    attempt = world.lives[key].attempt
    return attempt is not None and attempt.dead_at is not None


def _without_checkpoint(work: Workload) -> Workload:
    """What `apply` notes of checkpoints follows from the interval; noted here it would be out of date at the tick after."""
    run = work.run
    return work if run is None or run.last_checkpoint is None else replace(work, run=replace(run, last_checkpoint=None))


def _without_idle_rows(world: World, decision: Decision) -> Decision:
    """The decision without the rows of `waiting` that change nothing."""
    if not decision.waiting:
        return decision
    works = world.roster.works
    marks = tuple(
        row
        for row in decision.waiting
        if (row.entitled_since is not None or row.reason is Reason.UNFUNDED)
        and (work := works.get(row.workload)) is not None
        and work.entitled_since != row.entitled_since
    )
    return replace(decision, waiting=marks)


def _named(decision: Decision) -> Mapping[str, None]:
    """The work that a decision names, once each, in the order of its parts."""
    parts = (
        decision.preemptions, decision.starts, decision.promotions, decision.renewals, decision.reservations, decision.waiting
    )  # fmt: skip
    return dict.fromkeys(row.workload for part in parts for row in part)


def _refuse_impossible(world: World, decision: Decision) -> None:
    fleet = world.fleet
    wrong = list(
        physical_violations(fleet.cluster, fleet.nodes, fleet.accepts, fleet.down, world.roster.works, fleet.used, decision)
    )
    if wrong:
        raise broken(world.now, "the policy", "; ".join(map(str, wrong[:5])))
