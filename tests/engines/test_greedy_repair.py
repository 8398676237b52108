"""Greedy's state, kept in step by every move, and the repairs that make a decision keep the rules of single changes."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.domain import Snapshot, Unfunded, Weights
from allocator.engine import allocate
from allocator.entitlement import entitle
from allocator.epoch import EpochProblem, EpochSolution, compile_epoch
from allocator.epoch.afterthoughts import misplaced
from allocator.models.greedy import solver as greedy
from allocator.models.greedy.clearing import Clearing
from allocator.models.greedy.constraints import express, funding, gpu_limit, may_start, unlicensed
from allocator.models.greedy.objective import Curves, value_of_state
from allocator.models.greedy.placement import place
from allocator.models.greedy.repair import keep_back, promote, repair
from allocator.models.greedy.rounding import Rounding
from allocator.models.greedy.variables import State, Tables
from allocator.models.protocol import Limits
from allocator.topology.layout import GPUS
from tests.builders import HOUR, NOW, budget, job, nodes, running, snapshot, used
from tests.engines.epoch import Epoch
from tests.engines.layout import check_layout
from tests.engines.mixes import mixed_snapshot
from tests.engines.seeds import FUZZ, chunks
from tests.engines.tiny import tiny_snapshot
from tests.milp.fixing import cpsat_value

AB = [budget("a"), budget("b")]


class Play:
    """A state that moves by the names of workloads."""

    def __init__(self, snap: Snapshot) -> None:
        self.epoch = Epoch(snap)
        self.problem = self.epoch.problem
        self.state, self.curves = State(self.problem, Tables(self.problem)), Curves(self.problem)

    def start(self, name: str) -> None:
        """Start it where it fits, whether or not it may."""
        j = self.epoch.offer(name)
        found = place(self.state, j)
        assert found is not None
        self.state.start(j, found)

    def stop(self, name: str) -> None:
        self.state.stop(self.epoch.victim(name))

    def repair(self) -> tuple[set[str], set[str]]:
        """Who starts and who stops after the repair."""
        repair(self.state, self.curves)
        check_layout(self.problem, self.state.solution())
        names = self.problem.names
        offers, victims = self.problem.offers, self.problem.victims
        started = {("" if offers.charged[j] else "free:") + names[offers.work[j]] for j in self.state.starts}
        return started, {names[victims.work[r]] for r in self.state.stopped}


def test_who_is_not_in_the_way_stays() -> None:
    """Both are stopped for 4 GPUs; 8 come free. The one whose work is dearer stays."""
    old = [
        running("dear", "a", {"n1": 1}, 4, charged=False, min_runtime=0, resumable=False),
        running("cheap", "a", {"n1": 1}, 4, charged=False, min_runtime=0),
    ]
    play = Play(snapshot(nodes(1), AB, [*old, job("new", "b", 4)]))
    play.stop("dear")
    play.stop("cheap")
    play.start("new")
    keep_back(play.state, play.curves)
    assert play.repair() == ({"new"}, {"cheap"})


@pytest.mark.parametrize("most", [0, 1, 2])
def test_no_more_charged_work_stops_than_the_policy_allows(most: int) -> None:
    """Three gangs of `a` have stopped, each for one of `b`. Those that it costs least to keep come back."""
    old = [running(f"old{i}", "a", {f"n{i}": 1}, restart_time=300 * i) for i in (1, 2, 3)]
    play = Play(snapshot(nodes(3), AB, [*old, *(job(f"new{i}", "b") for i in (1, 2, 3))], max_preemptions=most))
    for i in (1, 2, 3):
        play.stop(f"old{i}")
        play.start(f"new{i}")
    started, stopped = play.repair()
    assert stopped == {"old1", "old2"} - {f"old{i}" for i in (1, 2) if i > most}
    assert len(started) == most


@pytest.mark.parametrize("seeds", chunks(usual=40, long=2000, size=40 if not FUZZ else 250))
def test_greedy_keeps_within_the_stops_of_the_policy(seeds: range) -> None:
    """Crowds of small charged work where much is owed to others, so that the relaxation stops parts of many."""
    for seed in seeds:
        rng, works = Random(seed), []
        for i in range(1, 5):
            sizes = rng.choice([(2, 2, 2, 2), (4, 4), (4, 2, 2), (8,), (1, 1, 2, 4)])
            works += [
                running(f"r{i}{k}", "a", {f"n{i}": 1}, g, restart_time=60 * rng.randint(1, 40)) for k, g in enumerate(sizes)
            ]
        works += [job(f"w{k}", "b", rng.choice([1, 2, 4, 8, 16])) for k in range(rng.randint(1, 6))]
        snap = snapshot(nodes(4), AB, works, max_preemptions=rng.randint(0, 3))
        answer = allocate(snap, engine="greedy")
        assert answer.solver.notes == (), seed
        assert len(answer.preemptions) <= (snap.policy.max_preemptions or 0)


def test_charged_work_that_stops_for_uncharged_work_comes_back() -> None:
    """`paid` has stopped for `guest`, which is never charged: `guest` waits again."""
    play = Play(snapshot(nodes(1), AB, [running("paid", "a", {"n1": 1}), guest()], preempt_under_entitlement=True))
    play.stop("paid")
    play.start("free:guest")
    assert misplaced(play.problem, play.state.solution())
    assert play.repair() == (set(), set())


def guest(gpus: int = 8) -> Any:
    return job("guest", "b", gpus, min_runtime=0)


def test_charged_first() -> None:
    """4 GPUs are wanted and 4 uncharged ones were kept while `paid` stopped: `spare` gives way to it, and `new` stays."""
    old = [running("paid", "a", {"n1": 1}, 4), running("spare", "a", {"n1": 1}, 4, charged=False, min_runtime=0)]
    play = Play(snapshot(nodes(1), AB, [*old, job("new", "b", 4)], preempt_under_entitlement=True))
    play.stop("paid")
    play.start("new")
    assert play.repair() == ({"new"}, {"spare"})


def test_charged_work_that_stops_for_charged_work_stays_away() -> None:
    play = Play(snapshot(nodes(1), AB, [running("paid", "a", {"n1": 1}), job("new", "b")], preempt_under_entitlement=True))
    play.stop("paid")
    play.start("new")
    assert play.repair() == ({"new"}, {"paid"})


def under_entitlement(*works: Any) -> Play:
    """`old` has no licence: its leaf is owed more than it holds."""
    old = running("old", "a", {"n1": 1}, 6)
    return Play(snapshot(nodes(1), [budget("a", 9), budget("b")], [old, *works], usage=[used("b", 20)]))


@pytest.mark.parametrize(("gpus", "stops"), [(4, {"old"}), (2, set())])
def test_without_a_licence_only_for_express_starts_that_need_the_place(gpus: int, stops: set[str]) -> None:
    """Beside `old` two GPUs are free: enough for 2, not for 4."""
    play = under_entitlement(job("debug", "b", gpus, min_runtime=600, user="u"))
    play.stop("old")
    play.start("debug")
    assert bool(unlicensed(play.state)) == (not stops)
    assert play.repair() == ({"debug"}, stops)


def test_without_a_licence_others_give_way() -> None:
    """`plain` took the place of `old` while an express start that fits beside it was all there was."""
    play = under_entitlement(job("debug", "b", 2, min_runtime=600, user="u"), job("plain", "b", 6))
    play.stop("old")
    play.start("debug")
    play.start("plain")
    assert play.repair() == ({"debug"}, set())


def poor(*works: Any) -> Play:
    """What is left of the budget of `a` pays for 8 GPUs of two hours, and not for 16."""
    plain = Epoch(snapshot(nodes(2), AB, works))
    left = int(plain.ent.market.available[plain.ent.tree.ids.index("a"), 0])
    return Play(snapshot(nodes(2), AB, works, usage=[used("a", (left - 24 * HOUR) // HOUR)]))


def test_what_starts_uncharged_and_is_funded_is_charged() -> None:
    play = poor(job("one"), job("two"))
    play.start("free:one")
    assert play.repair() == ({"one"}, set())


def test_what_starts_uncharged_for_want_of_funds_stays_so() -> None:
    play = poor(job("one"), job("two"))
    play.start("one")
    play.start("free:two")
    assert play.repair() == ({"one", "free:two"}, set())


def test_who_stays_is_promoted_as_far_as_funds_go() -> None:
    """Two run on unfunded, one promise can be paid: the first is promoted. If it stops, the second is."""
    old = [running(f"old{i}", "a", {f"n{i}": 1}, charged=False) for i in (1, 2)]
    play = poor(*old)
    promote(play.state)
    assert play.state.promoted == {play.epoch.promotion("old1")}
    play.stop("old1")
    assert play.state.promoted == set()
    promote(play.state)
    assert play.state.promoted == {play.epoch.promotion("old2")}


def test_gpu_limit_once_everybody_who_fits_has_come_back() -> None:
    """12 GPUs at most. `old` was stopped for `new`, but there is another node: back with it, `new` is too much."""
    old = running("old", "a", {"n1": 1}, charged=False, min_runtime=0)
    play = Play(snapshot(nodes(2), [budget("a", gpu_limit=12), budget("b")], [old, job("new", "a")]))
    play.stop("old")
    play.state.start(play.epoch.offer("new"), {1: 1})
    keep_back(play.state, play.curves)
    assert play.repair() == (set(), set())


def test_questions_about_one_more_start() -> None:
    """Funds for one, a limit of 12 GPUs, a lane of 8: the second of each is one too many."""
    pair = poor(job("one", unfunded=Unfunded.WAIT), job("two", unfunded=Unfunded.WAIT))
    assert second_is_refused(pair, "one", "two", funding)
    limited = Play(snapshot(nodes(3), [budget("a", gpu_limit=12), budget("b")], [job("one"), job("two")]))
    assert second_is_refused(limited, "one", "two", gpu_limit)
    lane = [job(f"debug{i}", gpus=4, min_runtime=600, user=f"u{i}", pools=("h100",)) for i in range(2)]
    guests = [job("guest", gpus=4, min_runtime=600, user="u3", pools=("b200", "h100"))]
    full = Play(snapshot([*nodes(2), *nodes(1, prefix="m", pool="b200")], [budget("a")], lane + guests))
    full.start("debug0")
    assert second_is_refused(full, "debug1", "guest@h100", express)


def second_is_refused(play: Play, first: str, second: str, rule: Callable[[State, int], bool]) -> bool:
    """Whether a rule lets the first start and then not the second; nothing starts twice."""
    state, one, two = play.state, play.epoch.offer(first), play.epoch.offer(second)
    assert may_start(state, one)
    assert may_start(state, two)
    assert rule(state, two)
    play.start(first)
    assert not may_start(state, one)
    assert not may_start(state, two)
    return not rule(state, two)


def replayed(problem: EpochProblem, state: State) -> State:
    """The same decision, reached on the shortest way."""
    fresh = State(problem, state.tables)
    for r in sorted(state.stopped):
        fresh.stop(r)
    for j, placement in sorted(state.starts.items()):
        fresh.start(j, placement)
    for u in sorted(state.promoted):
        fresh.promote(u)
    return fresh


def wander(state: State, rng: Random) -> None:
    """Random moves, none of them checked by a rule but that work starts once and lies where it fits."""
    for _ in range(30):
        match rng.randrange(6):
            case 0 | 1 if state.tables.work:
                j = rng.randrange(len(state.tables.work))
                found = place(state, j) if state.tables.work[j] not in state.started_work else None
                if found is not None:
                    state.start(j, found)
            case 2 if state.starts:
                state.take_back(rng.choice(sorted(state.starts)))
            case 3 if state.tables.victim_gpus:
                r = rng.randrange(len(state.tables.victim_gpus))
                if r not in state.stopped:
                    state.stop(r)
                elif state.fits(r):
                    state.keep(r)
            case 4:
                promote(state)
            case 5 if state.promoted:
                state.demote(rng.choice(sorted(state.promoted)))
            case _:
                pass


@pytest.mark.parametrize("seeds", chunks(usual=50, long=6000, size=500 if FUZZ else 50))
def test_every_move_keeps_the_state_in_step(seeds: range) -> None:
    for seed in seeds:
        for snap in (tiny_snapshot(seed), mixed_snapshot(seed)):
            problem = compile_epoch(entitle(snap))
            state = State(problem, Tables(problem))
            wander(state, Random(seed))
            fresh = replayed(problem, state)
            for field in ("free", "placed"):
                assert np.array_equal(getattr(state, field), getattr(fresh, field)), (seed, field)
            for field in ("starts", "stopped", "promoted", "started_work", "held", "promised", "express_used", "limit_used"):
                assert getattr(state, field) == getattr(fresh, field), (seed, field)
            intact = (problem.whole_weight > 0) & (state.placed == 0)
            assert np.array_equal(state.slack, 2 * state.free[GPUS] + intact), seed
            assert value_of_state(state, Curves(problem)) == value_of_state(fresh, Curves(problem))


@pytest.mark.parametrize("seeds", chunks(usual=50, long=6000, size=500 if FUZZ else 50))
def test_a_repaired_state_is_one_that_the_reference_model_allows(seeds: range) -> None:
    """Whatever was started, stopped and promoted in the beginning, as far as `may_start` allowed it."""
    for seed in seeds:
        problem = compile_epoch(entitle(tiny_snapshot(seed)))
        state, rng = State(problem, Tables(problem)), Random(seed)
        for r in range(len(problem.victims.work)):
            if rng.random() < 0.5 and problem.max_stops is None:
                state.stop(r)
        for j in rng.sample(range(len(problem.offers.work)), len(problem.offers.work)):
            found = place(state, j) if may_start(state, j) else None
            if found is not None:
                state.start(j, found)
        curves = Curves(problem)
        while repair(state, curves):
            pass
        allowed = cpsat_value(problem, state.solution(), (), np.flatnonzero(problem.victims.charged).tolist())
        assert allowed is not None, seed


@pytest.mark.parametrize("seeds", chunks(usual=50, long=6000, size=500 if FUZZ else 50))
def test_answers_are_allowed_by_the_reference_model(seeds: range) -> None:
    """But for keep, which is left to the last pass: it promotes whoever is funded."""
    for seed in seeds:
        for snap in (tiny_snapshot(seed), mixed_snapshot(seed)):
            problem = compile_epoch(entitle(snap))
            result = greedy.solve(problem, Limits(0.0))
            assert result.solution is not None
            check_layout(problem, result.solution)
            if result.solution == EpochSolution():
                continue
            worth = cpsat_value(problem, result.solution, (), np.flatnonzero(problem.victims.charged).tolist())
            assert worth is not None, seed
            assert result.value is not None
            assert round(worth) <= result.value, seed


@pytest.mark.parametrize("seed", [281, 1006])
def test_limits_hold_when_victims_come_back(seed: int) -> None:
    """These two had a victim kept after all, without a look at the limit of its allocation."""
    assert allocate(tiny_snapshot(seed), engine="greedy").solver.notes == ()


# --- exchanges -----------------------------------------------------------------------------------------------------------


def crowded(**dear: Any) -> Play:
    """`a` holds a node in halves, and `b` is owed one of them."""
    halves = [running("one", "a", {"n1": 1}, 4), running("two", "a", {"n1": 1}, 4, **dear)]
    return Play(snapshot(nodes(1), [budget("a"), budget("b")], [*halves, job("new", "b", 4)]))


def test_an_exchange_stops_the_cheapest_and_no_more() -> None:
    play = crowded(preempted=3)
    assert Rounding(play.problem).exchange(play.state)
    assert play.repair() == ({"new"}, {"one"})
    assert not Rounding(play.problem).exchange(play.state), "nobody else waits"


def test_an_exchange_that_is_not_worth_it_changes_nothing() -> None:
    """Half a node is owed, but all of it would have to go, at the dearest price."""
    work = running("all", "a", {"n1": 1}, 8, resumable=False, checkpoint_on_notice=False, preempted=30)
    play = Play(snapshot(nodes(1), [budget("a"), budget("b")], [work, job("new", "b", 1)]))
    assert not Rounding(play.problem).exchange(play.state)
    assert play.state.solution() == EpochSolution()
    assert (play.state.free == play.problem.free).all()


def test_exchanges_are_looked_for_where_the_search_has_found_nothing() -> None:
    """One GPU of 4,096 is too little for the search to look at."""
    held = [running(f"all{number}", "a", {f"n{number}": 1}) for number in range(1, 512)]
    parts = [running(f"part{number}", "a", {"n512": 1}, 1) for number in range(8)]
    works = [*held, *parts, job("new", "b", 1)]
    answer = allocate(snapshot(nodes(512), AB, works, usage=[used("b", 10 * 4096)]), engine="greedy")
    assert [row.workload for row in answer.starts] == ["new"]
    assert [row.workload for row in answer.preemptions] in [[work.id] for work in parts]


def free_work(*ages: int) -> Snapshot:
    """Nodes full of uncharged runs of one GPU that are so many seconds old and lose all of it; `new` of `b` is owed one GPU."""
    work = [
        running(
            f"run{number}", "a", {f"n{number // 8 + 1}": 1}, 1,
            charged=False, since=NOW - age, min_runtime=0, resumable=False, checkpoint_on_notice=False,
        )
        for number, age in enumerate(ages)
    ]  # fmt: skip
    return snapshot(nodes(len(ages) // 8), AB, [*work, job("new", "b", 1)], weights=Weights(lost_work=Fraction(1000)))


AGES = st.lists(st.integers(60, 20 * HOUR), min_size=24, max_size=24, unique=True)


@given(AGES, st.integers(0, 23))
def test_a_start_goes_where_the_least_is_lost(ages: list[int], first: int) -> None:
    play = Play(free_work(*ages))
    play.stop(f"run{first}")
    play.start("new")
    before = play.state.solution()
    after = Rounding(play.problem).at_less_cost(play.state)
    youngest = play.epoch.victim(f"run{ages.index(min(ages))}")
    assert after.stopped == {youngest}
    assert after.solution().starts.keys() == before.starts.keys()
    assert (after is play.state) == (before.stops == {youngest})
    assert play.state.solution() == before


@given(AGES)
def test_what_has_to_start_at_any_price_goes_where_the_least_is_lost(ages: list[int]) -> None:
    """A stop costs more than the wait of `new`; that it starts all the same is a rule."""
    answer = allocate(free_work(*ages), engine="greedy")
    assert [row.workload for row in answer.starts] == ["new"]
    assert [row.workload for row in answer.preemptions] == [f"run{ages.index(min(ages))}"]
    assert answer.solver.engine == "greedy"
    assert answer.solver.notes == ()


def test_whatever_it_costs_is_taken_from_unallocated_work_alone() -> None:
    """Charged work that stands beside it stays, though `new` has a licence to stop it and that would cost less."""
    free = running("free", "a", {"n1": 1}, 1, charged=False, min_runtime=0, resumable=False, checkpoint_on_notice=False)
    charged = [running(f"run{number}", "a", {"n1": 1}, 1) for number in range(7)]
    others = [running("all", "a", {"n2": 1}, 8), job("large", "b", 8)]
    play = Play(snapshot(nodes(2), AB, [free, *charged, *others, job("new", "b", 1)], weights=Weights(lost_work=Fraction(10))))
    costs = play.problem.victims.cost
    assert costs[play.epoch.victim("run0")] < costs[play.epoch.victim("free")]
    assert play.problem.victims.licensed.all()
    assert Clearing(play.problem, play.curves).start_over_unallocated(play.state, play.epoch.offer("new"))
    assert play.state.stopped == {play.epoch.victim("free")}


def test_whatever_it_costs_needs_unallocated_work() -> None:
    play = crowded()
    assert not Clearing(play.problem, play.curves).start_over_unallocated(play.state, play.epoch.offer("new"))
    assert play.state.solution() == EpochSolution()


@pytest.mark.parametrize("seeds", chunks(usual=20, long=2000, size=500 if FUZZ else 20))
def test_a_copy_moves_by_itself(seeds: range) -> None:
    for seed in seeds:
        problem, rng = compile_epoch(entitle(mixed_snapshot(seed))), Random(seed)
        state = State(problem, Tables(problem))
        wander(state, rng)
        same, other = replayed(problem, state), state.copy()
        wander(other, rng)
        for one, two in ((state, same), (other, replayed(problem, other))):
            assert one.solution() == two.solution(), seed
            assert value_of_state(one, Curves(problem)) == value_of_state(two, Curves(problem)), seed
            for field in ("free", "placed", "slack", "held", "promised", "started_work", "express_used", "limit_used"):
                assert np.array_equal(getattr(one, field), getattr(two, field)), (seed, field)
