"""What could be changed about a request, kind by kind, and whether it helps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from allocator.advise.model import Advice, Kind, Outcome, Trial
from allocator.advise.trial import Laboratory
from allocator.domain import Workload

MINUTE = 60
"""The grain at which min runtimes are tried, in seconds."""


@dataclass(slots=True)
class Search:
    """Tries changes of one request. `needs_charge`: as asked it would run free of charge, so only a promise helps."""

    lab: Laboratory
    request: Workload
    needs_charge: bool

    def attempt(self, kind: Kind, value: int | str | None, work: Workload) -> Trial:
        """One change; a shorter min runtime helps only if it is paid for, since without a promise its length is idle."""
        outcome = self.lab.attempt(work)
        charge = self.needs_charge or kind is Kind.MIN_RUNTIME
        helps = outcome.charged if charge else outcome.start is not None
        return Trial(kind=kind, value=value, workload=work, outcome=outcome, helps=helps)


def advise(lab: Laboratory, request: Workload, as_asked: Outcome) -> Iterator[Advice]:
    """Every kind of change that there is something to try of."""
    search = Search(lab, request, needs_charge=as_asked.start is not None)
    for find in (_fewer_tasks, _other_pools, _coarser_levels, _without_segment, _shorter, _unallocated):
        found = find(search)
        if found is not None:
            yield found


def _fewer_tasks(search: Search) -> Advice | None:
    """The largest gang of fewer tasks."""
    request = search.request
    return _largest(request.tasks, lambda tasks: search.attempt(Kind.TASKS, tasks, replace(request, tasks=tasks)), Kind.TASKS)


def _other_pools(search: Search) -> Advice | None:
    """Each pool that the request does not accept."""
    request = search.request
    pools = sorted({node.pool for node in search.lab.snapshot.cluster.nodes}) if request.pools else []
    others = [pool for pool in pools if pool not in request.pools]
    return _all_of(Kind.POOL, [search.attempt(Kind.POOL, pool, replace(request, pools=(pool,))) for pool in others])


def _coarser_levels(search: Search) -> Advice | None:
    """The finest coarser level that helps, or none at all; what is finer is asked for more, so it is not tried."""
    request, levels = search.request, search.lab.snapshot.cluster.levels
    required = request.topology.required
    if required is None or request.tasks == 1:
        return None
    choices: Iterable[str | None] = (*reversed(levels[: levels.index(required)]), None)
    tried = []
    for level in choices:
        wish = replace(request.topology, required=level)
        tried.append(search.attempt(Kind.LEVEL, level, replace(request, topology=wish)))
        if tried[-1].helps:
            break
    return _all_of(Kind.LEVEL, tried)


def _without_segment(search: Search) -> Advice | None:
    request = search.request
    if request.topology.segment is None or request.tasks == 1:
        return None
    free = replace(request, topology=replace(request.topology, segment=None))
    return _all_of(Kind.SEGMENT, [search.attempt(Kind.SEGMENT, None, free)])


def _shorter(search: Search) -> Advice | None:
    """The longest min runtime in whole minutes, below the promise as asked, with which it would start charged."""
    request = search.request
    promise = min(request.min_runtime, search.lab.snapshot.policy.protection_cap)

    def attempt(minutes: int) -> Trial:
        span = minutes * MINUTE
        return search.attempt(Kind.MIN_RUNTIME, span, replace(request, min_runtime=span))

    return _largest(-(-promise // MINUTE), attempt, Kind.MIN_RUNTIME)


def _unallocated(search: Search) -> Advice | None:
    """Without a promise. What starts free of charge already gains nothing by it."""
    request = search.request
    if request.min_runtime == 0 or search.needs_charge:
        return None
    return _all_of(Kind.UNALLOCATED, [search.attempt(Kind.UNALLOCATED, 0, replace(request, min_runtime=0))])


def _largest(too_large: int, attempt: Callable[[int], Trial], kind: Kind) -> Advice | None:
    """Halve the numbers from 1 to below `too_large`; the best is the largest that helped, and the next one was tried too."""
    tried, low, high = list[Trial](), 0, too_large
    best = None
    while high - low > 1:
        middle = (low + high) // 2
        tried.append(attempt(middle))
        if tried[-1].helps:
            low, best = middle, tried[-1]
        else:
            high = middle
    return Advice(kind=kind, tried=tuple(tried), best=best) if tried else None


def _all_of(kind: Kind, tried: list[Trial]) -> Advice | None:
    """The first that helped is the best."""
    best = next((trial for trial in tried if trial.helps), None)
    return Advice(kind=kind, tried=tuple(tried), best=best) if tried else None
