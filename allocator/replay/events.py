"""What happens to the cluster by itself, event by event."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from allocator.domain import Workload
from allocator.replay.calendar import Event, Kind
from allocator.replay.lives import Life, Outcome
from allocator.replay.meters import Books
from allocator.replay.policy import Idling
from allocator.replay.world import World, in_order


def happen(world: World, until: int) -> None:
    """Let everything happen that happens up to and at `until`."""
    while (time := world.calendar.next_time) is not None and time <= until:
        event = world.calendar.pop()
        world.pass_time(max(event.time, world.now))
        if _HANDLERS[event.kind](world, event):
            world.changed = True
    world.pass_time(until)


def _arrive(world: World, event: Event) -> bool:
    """A job is submitted, or the segment before it has ended."""
    job = world.jobs[event.key]
    submit = job.workload.submit_time if job.after is None else max(job.workload.submit_time, world.now)
    world.lives[event.key] = Life(job, submit, submit, job.failing_resumes)
    work = job.workload
    if work.submit_time != submit or work.run is not None:
        work = replace(work, submit_time=submit, run=None)
    if work.allocation not in world.books.leaves:
        world.held_back[work.id] = work
        return False
    world.swap(None, work)
    return True


def _end(world: World, event: Event) -> bool:
    """A run has done its work, or a resume fails; an event of an earlier run is void."""
    life, work = world.lives[event.key], world.roster.works.get(event.key)
    attempt = life.attempt
    if work is None or attempt is None or attempt.number != event.number or attempt.dead_at is not None:
        return False
    if attempt.fails:
        world.leave(work, Outcome.RESUME_FAILED)
        return True
    stays = _idle_until(world, life, work) if attempt.done_at is None else world.now
    if stays > world.now:
        attempt.done_at = world.now
        world.calendar.add(stays, Kind.END, event.key, event.number)
        return False
    world.leave(work, life.ending)
    return True


def _idle_until(world: World, life: Life, work: Workload) -> int:
    """Until when a session that has done its work keeps its GPUs."""
    if life.job.idle == 0 or world.idling is Idling.NEVER:
        return world.now
    leaves = world.now + life.job.idle
    if world.idling is Idling.ALWAYS:
        return leaves
    promised = work.run.protected_until if work.run is not None and work.run.charged else None
    return world.now if promised is None else min(leaves, promised)


def _fail(world: World, event: Event) -> bool:
    """A node dies, and what runs there with it; the GPUs are free once a decision has taken it off."""
    world.fleet.fail(event.key)
    for key in world.fleet.residents[event.key]:
        attempt = world.lives[key].attempt
        if attempt is not None and attempt.dead_at is None:
            attempt.dead_at = world.now
    return _refresh(world, event)


def _repair(world: World, event: Event) -> bool:
    """A node is back."""
    world.fleet.repair(event.key)
    _refresh(world, event)
    for key in tuple(world.fleet.residents[event.key]):
        _find_dead(world, world.roster.works[key])
    return True


def _find_dead(world: World, work: Workload) -> None:
    """A run that died with a node which is back before anybody has taken it off: its launcher finds it dead. A session whose
    work was done is over."""
    life = world.lives[work.id]
    attempt, run = life.attempt, work.run
    if attempt is None or run is None or attempt.dead_at is None or any(map(world.fleet.is_down, run.placement)):
        return
    world.leave(work, life.ending if attempt.done_at is not None else Outcome.CRASHED)


def _announce(world: World, event: Event) -> bool:
    """A node is wanted empty."""
    world.fleet.announce(world.trace.maintenance[event.number])
    return _refresh(world, event)


def _deadline(world: World, event: Event) -> bool:
    """The deadline of a drain has come; what the policy leaves there is cleared by hand after its next decision."""
    world.due.append(event.number)
    return _refresh(world, event)


def _give_back(world: World, event: Event) -> bool:
    """A node is back from maintenance."""
    world.fleet.give_back(world.trace.maintenance[event.number])
    return _refresh(world, event)


def _refresh(world: World, event: Event) -> bool:
    world.refresh(event.key)
    return True


def _revise(world: World, event: Event) -> bool:
    """Another budget tree is in force; work of allocations that are gone is held back while it waits."""
    world.read_meters(world.now)
    world.budgets = in_order(world.trace.revisions[event.number].budgets)
    world.books = world.meters.books = Books(world.budgets, world.fleet.pools)
    for work in world.roster.in_order():
        if work.run is None and work.allocation not in world.books.leaves:
            world.swap(work, None)
            world.held_back[work.id] = work
    for work in tuple(world.held_back.values()):
        if work.allocation in world.books.leaves:
            del world.held_back[work.id]
            world.swap(None, work)
    return True


_HANDLERS: Mapping[Kind, Callable[[World, Event], bool]] = {
    Kind.END: _end,
    Kind.REPAIR: _repair,
    Kind.GIVE_BACK: _give_back,
    Kind.FAIL: _fail,
    Kind.ANNOUNCE: _announce,
    Kind.DEADLINE: _deadline,
    Kind.REVISE: _revise,
    Kind.ARRIVE: _arrive,
}
"""Each handles one kind, and says whether a decision is called for."""
