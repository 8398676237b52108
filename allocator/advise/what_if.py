"""`what_if`: would it start now, whom would it displace, and what would make it start sooner."""

from __future__ import annotations

from functools import partial

from allocator.advise.changes import advise
from allocator.advise.model import Outcome, WhatIf
from allocator.advise.trial import open_laboratory
from allocator.domain import Snapshot, Workload
from allocator.engine import allocate


def what_if(
    snapshot: Snapshot, request: Workload, *, engine: str = "greedy", time_limit: float = 10.0, seed: int = 0
) -> WhatIf:
    """Submit a workload on paper: decide with it, without it, and with changes of it.

    Every answer is a decision of `allocate` on the snapshot and one more workload; nothing is claimed that was not decided
    so. Sizes and spans are found by halving, which takes for granted that less starts where more does.

    Parameters
    ----------
    snapshot
        The snapshot it would be submitted into; it is not changed.
    request
        A workload that waits and is not in the snapshot; `allocator.wire.decode_request` reads and checks one.
    engine, time_limit, seed
        As for `allocate`. The limit, in seconds, holds for each of the calls, some two dozen where much is to be tried.

    Returns
    -------
    WhatIf
        The outcome as asked, compared with the decision without it; and where it waits, or starts free of charge although
        it asks for a promise, what was tried and what helps.

    Raises
    ------
    ValueError
        If the id of the request is taken, or it runs; if engine or limit are not valid.
    """
    if request.run is not None or request.id in {work.id for work in snapshot.workloads}:
        raise ValueError(f"{request.id!r} runs or is in the snapshot: a request is a new workload with an id of its own")
    lab = open_laboratory(snapshot.canonical(), partial(allocate, engine=engine, time_limit=time_limit, seed=seed))
    as_asked = lab.attempt(request)
    advice = () if _as_wished(request, as_asked) else tuple(advise(lab, request, as_asked))
    return WhatIf(request=request, engine=engine, without=lab.without, as_asked=as_asked, advice=advice, calls=lab.calls)


def _as_wished(request: Workload, outcome: Outcome) -> bool:
    return outcome.start is not None and (outcome.start.charged or request.min_runtime == 0)
