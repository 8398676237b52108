"""Work that moves, in every engine: what the models allow, what greedy clears, and all of them against brute force."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from allocator.domain import Snapshot, StopReason
from allocator.engine import ENGINES, allocate
from allocator.engine.plan import Plan, after_plan
from allocator.entitlement import Entitlement, entitle
from allocator.epoch import EpochSolution
from allocator.models.greedy import solver as greedy
from allocator.models.greedy.clearing import Clearing
from allocator.models.greedy.constraints import may_start, unlicensed
from allocator.models.protocol import Limits
from allocator.topology import shape_of, tasks_per_node
from allocator.transition import apply
from allocator.verify import score_of
from allocator.verify.after import Placed
from tests.builders import HOUR, NOW, budget, job, node, running, snapshot, used, weights
from tests.engines.epoch import Epoch
from tests.engines.seeds import FUZZ, chunks
from tests.engines.test_brute_force import check_against_each_other, check_against_the_optimum, check_each, solved
from tests.engines.test_fixpoint import second_thoughts
from tests.engines.test_greedy_repair import Play
from tests.engines.tiny_moves import tiny_moves
from tests.milp.fixing import cpsat_value, milp_value

ABC = [budget("a"), budget("b"), budget("c")]
FIRM = running("firm", "c", {"b1": 1}, protected_until=NOW + HOUR)
PLAIN = weights(unfairness=0, express=0, spread=0, fragmentation=0, order=0)
"""Idle GPUs and lost work are all that counts."""

GPU = 3_600_000
"""What an idle GPU costs, in 1/1000 GPU-second."""

MOVE = 360_000
"""What moving `small` costs: a minute of restart for four GPUs, times 1.5."""


def racks(small: Any = None, *more: Any, machines: Any = (), **fields: Any) -> Snapshot:
    """`gang` is owed a rack; rack a has `small` in it, rack b `firm`, and room for `small`."""
    places = [node("a1", "a"), node("a2", "a"), node("b1", "b"), node("b2", "b"), *machines]
    small = small or running("small", "a", {"a1": 1}, 4)
    works = [FIRM, small, job("gang", "b", 16, required="rack"), *more]
    return snapshot(places, ABC, works, **{"reserve_from": Fraction(1), "weights": PLAIN, **fields})


GANG = {"gang": {"a1": 1, "a2": 1}}
SMALL = {"small": {"b2": 1}}


def value(snap: Snapshot, starts: dict[str, dict[str, int]], *stops: str) -> int | None:
    """What doing exactly this is worth; None if it is forbidden. Both exact models agree."""
    epoch = Epoch(snap)
    places = {epoch.offer(name): {epoch.ent.layout.index[key]: n for key, n in own.items()} for name, own in starts.items()}
    solution = EpochSolution(starts=places, stops=frozenset(epoch.victim(name) for name in stops))
    found = [measure(epoch.problem, solution) for measure in (cpsat_value, milp_value)]
    rounded = {None if worth is None else round(worth) for worth in found}
    assert len(rounded) == 1, found
    return rounded.pop()


def test_a_move_frees_the_rack_and_costs_a_restart() -> None:
    assert value(racks(), GANG | SMALL, "small") == -16 * GPU + MOVE


def test_nothing_starts_elsewhere_without_being_stopped() -> None:
    assert value(racks(), SMALL) is None
    assert value(racks(), SMALL, "small") == MOVE


def test_without_a_licence_it_moves_or_stays() -> None:
    assert not Epoch(racks()).problem.victims.licensed.any()
    assert value(racks(), GANG, "small") is None
    assert value(racks(), {}) == 0


def test_with_a_licence_it_may_as_well_stop() -> None:
    assert value(racks(preempt_under_entitlement=True), GANG, "small") == -12 * GPU + MOVE


STRADDLING = running("small", "a", {"a1": 1, "b2": 1}, 4, gpus_per_task=2)
"""A task in each rack, and room for both in rack b."""


def test_a_gang_moves_as_a_whole() -> None:
    snap = racks(STRADDLING)
    assert value(snap, GANG | {"small": {"b2": 2}}, "small") == -16 * GPU + MOVE
    assert value(snap, GANG | {"small": {"b2": 1}}, "small") is None
    assert value(snap, GANG, "small") is None


def test_greedy_clears_a_rack_of_a_gang() -> None:
    play = Play(racks(STRADDLING))
    assert Clearing(play.problem, play.curves).start(play.state, play.epoch.offer("gang"))
    assert play.repair() == ({"gang", "small"}, {"small"})
    assert play.state.starts[play.epoch.offer("small")] == {play.epoch.ent.layout.index["b2"]: 2}


def test_it_takes_room_where_it_lands() -> None:
    """`firm` leaves eight GPUs in rack b, and `large` takes them."""
    snap = racks(None, job("large", "b", 8))
    assert value(snap, GANG | SMALL | {"large": {"b2": 1}}, "small") is None
    assert value(snap, GANG | SMALL, "small") == -16 * GPU + MOVE


def test_it_starts_in_one_way_only_and_in_its_pool() -> None:
    """It accepts any pool, and would be funded in both."""
    epoch = Epoch(racks(machines=[node("x1", "x", pool="b200")]))
    own = np.flatnonzero(epoch.problem.offers.victim >= 0)
    assert len(own) == 1
    assert epoch.problem.offers.charged[own].all()
    assert epoch.ent.layout.pools[epoch.problem.offers.pool[own[0]]] == "h100"


def test_what_cannot_be_funded_anew_has_no_way_to_move() -> None:
    epoch = Epoch(racks(usage=[used("a", 6000)]))
    assert not (epoch.problem.offers.victim >= 0).any()
    assert len(epoch.problem.victims.work) == 0 or epoch.problem.victims.licensed.all()


def test_greedy_clears_a_rack() -> None:
    play = Play(racks())
    gang = play.epoch.offer("gang")
    assert Clearing(play.problem, play.curves).start(play.state, gang)
    assert not unlicensed(play.state)
    assert play.repair() == ({"gang", "small"}, {"small"})


def test_greedy_undoes_what_does_not_pay() -> None:
    """There is no room for `small` in rack b, and it has no licence to stop."""
    play = Play(racks(None, running("full", "b", {"b2": 1}, protected_until=NOW + HOUR)))
    assert not play.problem.victims.licensed.any()
    free = play.state.free.copy()
    assert not Clearing(play.problem, play.curves).start(play.state, play.epoch.offer("gang"))
    assert (play.state.free == free).all()
    assert play.state.solution() == EpochSolution()
    assert not any(play.state.held)


def test_greedy_stops_who_has_a_licence_and_no_place() -> None:
    full = running("full", "b", {"b2": 1}, protected_until=NOW + HOUR)
    play = Play(racks(None, full, preempt_under_entitlement=True))
    assert Clearing(play.problem, play.curves).start(play.state, play.epoch.offer("gang"))
    assert play.repair() == ({"gang"}, {"small"})


def test_greedy_keeps_promotions_when_it_undoes() -> None:
    """`small` is to be promoted where it is. Clearing its rack stops it, or else leaves it promoted."""
    small = running("small", "a", {"a1": 1}, 4, charged=False, resumable=False, preempted=30)
    play = Play(racks(small, running("full", "b", {"b2": 1}, protected_until=NOW + HOUR)))
    play.state.promote(play.epoch.promotion("small"))
    Clearing(play.problem, play.curves).start(play.state, play.epoch.offer("gang"))
    assert bool(play.state.promoted) != bool(play.state.stopped)


def test_a_restart_needs_its_stop_and_goes_with_it() -> None:
    play = Play(racks())
    small = play.epoch.offer("small")
    assert not may_start(play.state, small)
    play.stop("small")
    assert may_start(play.state, small)
    play.start("small")
    assert play.state.restart(play.epoch.victim("small")) == small
    assert play.repair() == (set(), set()), "nobody needs its place: it stays"


def test_who_displaces_a_restart_puts_it_back() -> None:
    """`small` was stopped for the gang and found no place: without a licence it stays, and the gang waits."""
    play = Play(racks(None, job("large", "b", 8)))
    play.stop("small")
    play.start("gang")
    play.start("large")
    assert unlicensed(play.state) == [play.epoch.victim("small")]
    assert play.repair() == ({"large"}, set())


def test_greedy_moves_by_itself() -> None:
    epoch = Epoch(racks())
    found = greedy.solve(epoch.problem, Limits(0.0))
    assert epoch.named(found) == {"gang": {"a1": 1, "a2": 1}, "small": {"b2": 1}, "-small": {}}


UNPROVEN, WORSE, GREEDY_WORSE, TOO_LARGE = (1, 0.05), (1, 0.03), (3, 0.25), (3, 0.15)
"""At most so many, and so large a part, of the epochs are not proven, not decided as well as can be (by greedy alone), or too
large to enumerate. `unallocated_last` is not stated for gangs that have to give way: the last pass mends that, at a price."""


@pytest.mark.parametrize("seeds", chunks(usual=16, long=3000, size=100 if FUZZ else 8))
def test_no_engine_errs(seeds: range) -> None:
    outcomes: Counter[str] = Counter()
    for seed in seeds:
        case = solved(seed, tiny_moves)
        check_each(case)
        check_against_each_other(case)
        if case.best is None:
            outcomes["too large"] += 1
            continue
        check_against_the_optimum(case, case.best)
        found = {name: decision.solver for name, decision in case.decisions.items()}
        outcomes["not proven"] += found["portfolio"].status != "optimal"
        outcomes["worse"] += found["portfolio"].objective > case.best
        outcomes["greedy worse"] += found["greedy"].objective > case.best
    for name, (count, part) in {
        "not proven": UNPROVEN, "worse": WORSE, "greedy worse": GREEDY_WORSE, "too large": TOO_LARGE,
    }.items():  # fmt: skip
        assert outcomes[name] <= max(count, part * len(seeds)), outcomes


def test_a_third_of_these_epochs_have_something_to_move() -> None:
    """Else the test above would say little."""
    moves = [bool(entitle(tiny_moves(seed)).works.movable.any()) for seed in range(48)]
    assert sum(moves) >= 16


@pytest.mark.parametrize("seeds", chunks(usual=10, long=1500, size=150 if FUZZ else 10))
def test_epochs_with_moves_are_at_rest_after_a_decision(seeds: range) -> None:
    changed = dict.fromkeys(ENGINES, 0)
    for seed in seeds:
        case = solved(seed, tiny_moves, enumerate_all=False)
        for engine, decision in case.decisions.items():
            changed[engine] += bool(second_thoughts(case.snapshot, decision, engine))
    assert all(count <= max(1, 0.03 * len(seeds)) for count in changed.values()), changed


def elsewhere(ent: Entitlement, row: int) -> Iterator[Placed]:
    """Every other place for a run on what is free beside everything that runs, one or two nodes each."""
    work, keep = ent.snapshot.workloads[row], after_plan(ent, Plan({}, frozenset(), frozenset()))
    assert work.run is not None
    here = {ent.layout.index[name]: tasks for name, tasks in work.run.placement.items()}
    room = tasks_per_node(np.maximum(keep.free, 0), shape_of(work))
    for first, second in itertools.combinations_with_replacement(range(len(room)), 2):
        tasks = Counter({first: 1} if work.tasks == 1 else {first: 1} | {second: work.tasks - 1})
        if first == second:
            tasks = Counter({first: work.tasks})
        if all(room[node] + here.get(node, 0) >= count for node, count in tasks.items()):
            yield Placed(dict(tasks), charged=work.run.charged, express=False)


def test_a_move_that_nothing_starts_for_never_pays() -> None:
    """Whatever would be whole again afterwards: what is not wholly free now cannot be broken up, so the score does not see it,
    and whoever would gain by lying closer together may not move."""
    tried = 0
    for seed in range(150):
        ent = entitle(tiny_moves(seed))
        nothing = score_of(after_plan(ent, Plan({}, frozenset(), frozenset()))).total
        for row in np.flatnonzero(ent.works.movable).tolist():
            for place in elsewhere(ent, row):
                plan = Plan({row: place}, frozenset({row}), frozenset())
                worth = nothing - score_of(after_plan(ent, plan)).total
                tried += 1
                free = ent.snapshot.policy.weights.lost_work == 0 or ent.snapshot.workloads[row].tasks > 1
                assert worth < 0 or (worth == 0 and free), (seed, row, place)
    assert tried >= 200


@pytest.mark.parametrize("seeds", chunks(usual=8, long=600, size=16 if not FUZZ else 100))
def test_nobody_moves_back(seeds: range) -> None:
    """Six hours in which nothing arrives or ends: whoever has moved stays, unless a deadline has driven somebody out since."""
    moved = 0
    for seed in seeds:
        snap, moves = tiny_moves(seed), Counter[str]()
        for _ in range(12):
            found = allocate(snap, engine="greedy", explain=False)
            if any(row.reason is StopReason.DRAIN for row in found.preemptions):
                moves.clear()
            moves.update(row.workload for row in found.preemptions if row.reason is StopReason.RELOCATE)
            moved += len(moves)
            assert max(moves.values(), default=0) <= 1, seed
            snap = apply(snap, found, HOUR // 2)
    assert moved


def four(works: list[Any], **limits: int) -> Snapshot:
    """Two racks of two nodes of four GPUs. `large` is owed three nodes and may not have them; so work in its way may move."""
    places = [node("n0", "r0", gpus=4), node("n1", "r0", gpus=4), node("n2", "r1", gpus=4), node("n3", "r1", gpus=4)]
    shares = {"x": 1, "y": 1, "z": 0 if limits["y"] > 8 else 1}
    budgets = [budget(name, share, gpu_limit=limits[name]) for name, share in shares.items()]
    return snapshot(places, budgets, works)


def gang_that_keeps_one_node() -> Snapshot:
    """Moving a task of `pair` from n1 to n2 would make room for `free`, which runs without charge and may displace nobody."""
    works = [
        job("large", "x", 12, gpus_per_task=4, entitled_since=NOW - HOUR),
        job("free", "z", 8, gpus_per_task=4),
        running("session", "y", {"n2": 1}, 2, renew=True, protected_until=NOW),
        running("pair", "y", {"n1": 1, "n3": 1}, 8, gpus_per_task=4, last_checkpoint=NOW),
    ]
    return four(works, x=8, y=100, z=100)


def moves_below_a_limit() -> Snapshot:
    """`small` and `whole` could change places with a free node, and `free` start; each alone stays below the limit of y."""
    works = [
        job("large", "z", 12, gpus_per_task=4, entitled_since=NOW - HOUR),
        job("free", "z", 4, min_runtime=0, submit_time=NOW),
        running("small", "y", {"n3": 1}, 1),
        running("firm", "x", {"n1": 1}, 2, protected_until=NOW + HOUR),
        running("firmer", "x", {"n2": 1}, 4, protected_until=NOW + HOUR),
        running("whole", "y", {"n0": 1}, 4, last_checkpoint=NOW),
    ]
    return four(works, x=8, y=8, z=8)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("case", [gang_that_keeps_one_node, moves_below_a_limit])
def test_a_restart_is_no_reason_for_its_own_stop(case: Any, engine: str) -> None:
    decision = allocate(case(), engine=engine)
    assert decision.solver.notes == ()
    assert decision.solver.status == "optimal" or engine == "greedy"
