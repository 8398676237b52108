"""Ensures the rules about single changes that nothing after the engine repairs: needless stops are taken back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from allocator.epoch.afterthoughts import misplaced
from allocator.epoch.problem import lack_room
from allocator.epoch.solution import use_of_starts
from allocator.models.greedy.constraints import funding, gpu_limit, may_promote, unlicensed
from allocator.models.greedy.objective import Curves, gain_of_keep, loss_of_return
from allocator.models.greedy.variables import State
from allocator.topology.layout import IntArray


def repair(state: State, curves: Curves) -> bool:
    """Ensures licence, charged_first and max_preemptions, then that limits and funds hold; whether anything had to be done."""
    changed = _within_max_preemptions(state, curves)
    while True:
        wrong = [*unlicensed(state), *misplaced(state.problem, state.solution())]
        kept = [
            r
            for r in dict.fromkeys(wrong)
            if r in state.stopped and _put_back(state, curves, r, all_starts=_came_late(state, r))
        ]
        if not kept and not _within_limits(state, curves):
            break
        changed = True
        keep_back(state, curves)
    promote(state)
    _charge_funded(state)
    return changed


def keep_back(state: State, curves: Curves) -> None:
    """Ensures minimal: whoever is not in the way stays, the dearest first."""
    short = lack_room(state.problem.victims, _without_restarts(state))
    back = [r for r in state.stopped if not short[r]]
    rate = {r: gain_of_keep(state, curves, r) / state.tables.victim_gpus[r] for r in back}
    for r in sorted(rate, key=lambda r: (-rate[r], r)):
        if state.fits(r):
            state.keep(r)


def _without_restarts(state: State) -> IntArray:
    """What nodes would have left if no stopped victim started elsewhere, shape (3, num_nodes): nobody can have more room."""
    restarts = (state.restart(r) for r in state.tables.restarts)
    return state.free + use_of_starts(state.problem, {j: state.starts[j] for j in restarts if j is not None})


def promote(state: State, rows: Iterable[int] | None = None) -> None:
    """Promote who stays, as far as funds go: those given, or all."""
    victim = state.problem.promotions.victim
    for u in range(len(victim)) if rows is None else rows:
        if u not in state.promoted and int(victim[u]) not in state.stopped and may_promote(state, u):
            state.promote(u)


def _within_max_preemptions(state: State, curves: Curves) -> bool:
    """Ensures max_preemptions: of the charged work that stops beyond the limit that which it costs least to keep stays."""
    most, changed = state.problem.max_stops, False
    while most is not None:
        stops = [r for r in sorted(state.stopped) if state.tables.victim_charged[r]]
        if len(stops) <= most:
            break
        r = min(stops, key=lambda r: (_loss_of_keep(state, curves, r), r))
        if not _put_back(state, curves, r, all_starts=True):
            break
        keep_back(state, curves)
        changed = True
    return changed


def _loss_of_keep(state: State, curves: Curves, r: int) -> int:
    """What it costs, one by one, that the starts on the nodes of a victim wait and the victim stays."""
    return sum(loss_of_return(state, curves, j) for j in _starts_on_nodes_of(state, r)) - gain_of_keep(state, curves, r)


def _starts_on_nodes_of(state: State, r: int) -> list[int]:
    nodes = set(state.problem.victims.nodes[r].tolist())
    return [j for j, placement in state.starts.items() if not nodes.isdisjoint(placement)]


def _came_late(state: State, r: int) -> bool:
    """Whether work that started at this instant took what was free beside a victim: express starts do not excuse its stop."""
    return bool(state.problem.late[:, state.problem.victims.nodes[r]].any()) and not state.tables.licensed[r]


def _put_back(state: State, curves: Curves, r: int, *, all_starts: bool = False) -> bool:
    """Keep a victim after all; whoever has no better claim to its place gives way, or `all_starts`."""
    tables, spare = state.tables, state.tables.licensed[r]
    starts = _starts_on_nodes_of(state, r)
    gives_way = [j for j in starts if all_starts or not (tables.charged[j] if spare else tables.express[j])]
    for j in sorted(gives_way, key=lambda j: (tables.charged[j], loss_of_return(state, curves, j), j)):
        if _in_the_way(state, r, list(state.starts[j])):
            state.take_back(j)
    for v, own in enumerate(state.problem.victims.nodes):
        if v != r and v not in state.stopped and not state.is_charged(v) and _in_the_way(state, r, own.tolist()):
            state.stop(v)
    if state.fits(r):
        state.keep(r)
    return r not in state.stopped


def _in_the_way(state: State, r: int, nodes: Sequence[int]) -> bool:
    """Whether a victim lacks room on any of these nodes."""
    own = state.problem.victims.nodes[r]
    short = own[(state.free[:, own] < state.problem.victims.need[r]).any(axis=0)]
    return not set(short.tolist()).isdisjoint(nodes)


def _within_limits(state: State, curves: Curves) -> bool:
    """Ensures gpu_limit where victims have stayed after all: what is worth least waits."""
    changed = False
    for i, row in enumerate(state.problem.limits):
        starts = [int(j) for j in row.offers if int(j) in state.starts]
        for j in sorted(
            starts, key=lambda j: (state.tables.victim[j] >= 0, loss_of_return(state, curves, j) / state.tables.gpus[j])
        ):
            if state.limit_used[i] > row.limit:
                state.take_back(j)
                changed = True
    return changed


def _charge_funded(state: State) -> None:
    """Ensures funded_is_charged: what starts uncharged and turns out to be funded is charged, where it lies, or waits."""
    for j in [j for j in state.starts if state.problem.offers.must_be_unfunded[j]]:
        twin = state.tables.charged_twin.get(j)
        if twin is not None and funding(state, twin):
            placement = state.take_back(j)
            open_to = state.problem.shapes.open_to[state.tables.shape[twin]]
            if gpu_limit(state, twin) and all(open_to[node] for node in placement):
                state.start(twin, placement)
