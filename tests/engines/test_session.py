"""A session saves time and nothing else: with it and without it, a call gives the same bytes."""

from __future__ import annotations

import gc
import pickle
import weakref
from dataclasses import replace
from fractions import Fraction

import pytest

from allocator import Session, allocate, encode_decision
from allocator.domain import Cluster, Decision, NodeState, Snapshot
from allocator.entitlement import entitle
from allocator.generate.organisation_trace import TraceParams, generate_trace
from allocator.replay import ReplayOptions, Simulator, make_policy
from allocator.replay.product import Budgets
from allocator.transition import apply
from allocator.wire import decode_snapshot, encode_snapshot
from tests.engines.epochs import HOUR, World
from tests.engines.tiny_contract import tiny_contract


def test_every_epoch_of_a_world_is_decided_alike_with_and_without_a_session() -> None:
    _play(range(4), epochs=10)


@pytest.mark.fuzz
def test_many_epochs_of_many_worlds_are_decided_alike() -> None:
    _play(range(100, 140), epochs=30)


def _play(seeds: range, epochs: int) -> None:
    session = Session()  # one for all worlds: it has to notice that the cluster is another
    for seed in seeds:
        world = World.new(seed)
        for _ in range(epochs):
            decision = allocate(world.snapshot, engine="greedy", session=session)
            assert _bytes(decision) == _bytes(allocate(world.snapshot, engine="greedy"))
            world.carry_out(decision)


def test_epochs_that_come_as_documents_are_decided_alike() -> None:
    session = Session()
    for seed in range(2):
        world = World.new(seed)
        for _ in range(6):
            read = decode_snapshot(encode_snapshot(world.snapshot))  # equal objects, none of them the same
            decision = allocate(read, engine="greedy", session=session)
            assert _bytes(decision) == _bytes(allocate(world.snapshot, engine="greedy"))
            world.carry_out(decision)


def test_what_prices_and_limits_are_made_of_may_change_from_one_epoch_to_the_next() -> None:
    session = Session()
    for seed in (1, 2, 6):
        snapshot = World.new(seed).snapshot
        policy, cluster, late = snapshot.policy, snapshot.cluster, snapshot.now + HOUR
        first, *others = cluster.nodes
        for changed in (
            snapshot,
            replace(snapshot, policy=replace(policy, window=policy.window // 2)),
            replace(snapshot, policy=replace(policy, weights=replace(policy.weights, spread=3 * policy.weights.spread + 1))),
            replace(snapshot, cluster=replace(cluster, slowdown={level: Fraction(1, 3) for level in cluster.levels[:-1]})),
            replace(snapshot, cluster=replace(cluster, nodes=(replace(first, state=NodeState.DOWN), *others))),
            replace(snapshot, cluster=replace(cluster, nodes=(replace(first, drain_deadline=late), *others))),
            replace(snapshot, cluster=replace(cluster, nodes=(replace(first, gpus=2 * first.gpus), *others))),
            snapshot,
        ):
            decision = allocate(changed, engine="greedy", session=session)
            assert _bytes(decision) == _bytes(allocate(changed, engine="greedy"))


def test_a_replay_gives_the_same_results_with_and_without_a_session() -> None:
    trace = generate_trace(TraceParams(gpus=64, pools=1, days=1, load=1.5, seed=3))
    options = ReplayOptions(tick=60, until=trace.start + 8 * HOUR)
    tables = []
    for policy in (make_policy("budgets_greedy"), Forgetful()):
        simulator = Simulator(trace, policy, options)
        simulator.run()
        tables.append((simulator.epochs, simulator.world.runs, simulator.world.hours, simulator.bounds.rows))
    assert tables[0] == tables[1]
    assert sum(row.starts for row in tables[0][0]) > 20


class Forgetful(Budgets):
    """Greedy with a new session for every decision."""

    def __init__(self) -> None:
        super().__init__("budgets_greedy", "greedy")

    def decide(self, snapshot: Snapshot, previous: Decision | None) -> Decision:
        """One epoch, as if there had been none before."""
        return allocate(snapshot, engine="greedy", explain=False)


def test_a_session_keeps_one_epoch_and_no_more() -> None:
    session, world = Session(), World.new(4)
    seen = []
    for _ in range(4):
        decision = allocate(world.snapshot, engine="greedy", session=session)
        seen.append(weakref.ref(session.before))
        world.carry_out(decision)
    gc.collect()
    assert [one() is not None for one in seen] == [False, False, False, True]


def test_unrelated_snapshots_share_a_session_without_harm() -> None:
    session = Session()
    for seed in range(40):
        snapshot = tiny_contract(seed)
        decision = allocate(snapshot, engine="greedy", session=session)
        assert _bytes(decision) == _bytes(allocate(snapshot, engine="greedy"))


def test_what_has_not_changed_is_taken_over() -> None:
    snapshot = World.new(1).snapshot
    first = entitle(snapshot)
    second = entitle(replace(snapshot, now=snapshot.now + 60), first)
    assert second.tree is first.tree
    assert second.layout.capacity is first.layout.capacity
    assert second.layout.answers is first.layout.answers


def test_the_state_of_a_node_is_read_anew_and_its_place_is_not() -> None:
    snapshot = World.new(1).snapshot
    first = entitle(snapshot)
    second = entitle(_with_first_node(snapshot, state=NodeState.DOWN, drain_deadline=None), first)
    assert not first.layout.down.any()
    assert second.layout.down.tolist() == [True] + [False] * (len(first.layout.names) - 1)
    assert second.layout.capacity is first.layout.capacity


@pytest.mark.parametrize("change", [{"gpus": 8}, {"pool": "b"}, {"labels": {"k": "v"}}, {"domains": ("c", "r9")}])
def test_a_node_that_was_rebuilt_is_laid_out_anew(change: dict[str, object]) -> None:
    snapshot = World.new(1).snapshot
    first = entitle(snapshot)
    changed = _with_first_node(snapshot, **change)
    second = entitle(changed, first)
    assert second.layout.answers is not first.layout.answers
    assert second.layout.pools == entitle(changed).layout.pools
    assert (second.layout.capacity == entitle(changed).layout.capacity).all()


def test_budgets_that_change_make_a_new_tree() -> None:
    snapshot = World.new(1).snapshot
    first = entitle(snapshot)
    budgets = (replace(snapshot.budgets[0], share=snapshot.budgets[0].share * 3), *snapshot.budgets[1:])
    second = entitle(replace(snapshot, budgets=budgets), first)
    assert second.tree is not first.tree
    assert second.tree.share[1, 0] != first.tree.share[1, 0]


def test_a_pickled_session_remembers_nothing() -> None:
    session = Session()
    allocate(World.new(1).snapshot, engine="greedy", session=session)
    assert session.before is not None
    assert pickle.loads(pickle.dumps(session)).before is None


def test_a_call_that_explains_nothing_acts_alike_and_leads_to_the_same_snapshot() -> None:
    marked = 0
    for seed in range(6):
        world = World.new(seed)
        for _ in range(6):
            decision = allocate(world.snapshot, engine="greedy")
            brief = allocate(world.snapshot, engine="greedy", explain=False)
            assert set(brief.waiting) <= set(decision.waiting)
            assert apply(world.snapshot, brief, 60) == apply(world.snapshot, decision, 60)
            assert _acts(brief) == _acts(decision)
            assert brief.snapshot == ""
            marked += len(brief.waiting)
            world.carry_out(decision)
    assert marked, "no gang was marked in all these epochs"


def _with_first_node(snapshot: Snapshot, **change: object) -> Snapshot:
    first, *others = snapshot.cluster.nodes
    nodes = (replace(first, **change), *others)  # type: ignore[arg-type]
    cluster: Cluster = replace(snapshot.cluster, nodes=nodes)
    return replace(snapshot, cluster=cluster)


def _acts(decision: Decision) -> Decision:
    """Without what people read and files are matched by."""
    return replace(decision, snapshot="", waiting=(), drains=(), allocations=(), warnings=(), timing={})


def _bytes(decision: Decision) -> bytes:
    return encode_decision(replace(decision, timing={}))
