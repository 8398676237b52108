"""Everything that holds before a decision: who may have what, and what each choice would cost."""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass, replace
from itertools import islice
from operator import attrgetter, lt

import numpy as np

from allocator.domain import Policy, Snapshot, Workload
from allocator.entitlement.arrange import Arrangement, arrange
from allocator.entitlement.claim import Claims, large_gangs
from allocator.entitlement.claimants import Claimants, read_claimants
from allocator.entitlement.columns import Columns, read_columns
from allocator.entitlement.contract import Contract, read_contract
from allocator.entitlement.costs import lost_costs, order_costs
from allocator.entitlement.curve import build_curves
from allocator.entitlement.demand import Demand, add_up, installed_gpus, schedulable_gpus
from allocator.entitlement.entitled import mark_entitled
from allocator.entitlement.express import open_to
from allocator.entitlement.facts import Facts
from allocator.entitlement.forced import UNFORCED
from allocator.entitlement.funding import Funds, budgets, promise_costs, promises, read_funds
from allocator.entitlement.healthy import HealthCheck
from allocator.entitlement.model import Entitlement, Forced, Market, WorkTable
from allocator.entitlement.moves import movable
from allocator.entitlement.patience import waits_for_leavers
from allocator.entitlement.places import Places, find_places, stray_allocations, warnings_of
from allocator.entitlement.spreads import Spreads
from allocator.entitlement.tree import BudgetTree, build_tree, leaves_of
from allocator.entitlement.usage import window_usage
from allocator.entitlement.waterfill import MILLI, fill
from allocator.topology import BoolArray, IntArray, Layout, build_layout
from allocator.wire import Texts


def entitle(snapshot: Snapshot, like: Entitlement | None = None) -> Entitlement:
    """Read the snapshot: contracts, budgets, demand, entitlement, and the cost of every stop and every wait.

    `like` is what was found at some other instant, if there is any: cluster and budgets that have not changed are taken from
    it. It never changes the result.
    """
    snapshot = _in_order(snapshot)
    reserved = {held.workload for held in snapshot.reservations}
    ent = _entitle(snapshot, like, reserved)
    # Whoever loses its reservation is a candidate of the lane like any other: already now, as in the next call.
    while lost := {work.id for work in _losers(ent, reserved) if open_to(work, snapshot.policy.express)}:
        reserved -= lost
        ent = _entitle(snapshot, like, reserved)
    return ent


def _losers(ent: Entitlement, reserved: Set[str]) -> Iterator[Workload]:
    """Gangs among those with a reservation of an earlier decision that wait and are kept none."""
    kept, index = {one.row for one in ent.reserved}, ent.columns.index
    rows = (index[key] for key in reserved if key in index)
    return (work for row in rows if row not in kept and (work := ent.snapshot.workloads[row]).run is None)


def _entitle(snapshot: Snapshot, like: Entitlement | None, reserved: Set[str]) -> Entitlement:
    """The facts, if gangs with these ids keep their reservations: then the lane is not open to them."""
    layout = build_layout(snapshot, None if like is None else like.layout)
    columns = read_columns(snapshot.workloads, None if like is None else like.columns)
    tree = _tree(snapshot, layout, columns, like)
    contract = read_contract(snapshot, layout, columns)
    installed, schedulable = installed_gpus(layout), schedulable_gpus(layout, contract)
    places = find_places(layout, tree, contract, installed)
    usage = window_usage(snapshot, tree, layout.pools, snapshot.now, contract)
    budget = _budget(snapshot.policy, tree, installed, like)
    funds = read_funds(contract, places, tree, budget, usage[0], snapshot.now)
    check = HealthCheck(layout, snapshot.now) if like is None else like.health.at(layout, snapshot.now)
    claimants = read_claimants(snapshot, tree, contract, places, installed, funds, reserved, check)
    demand = add_up(contract, places, claimants.funded, tree, len(layout.pools))
    market, alarm = _market(snapshot.policy, tree, installed, schedulable, usage, funds, demand)
    claims = _claims(snapshot.policy, contract, places, claimants, market)
    entitled, since = mark_entitled(snapshot.workloads, contract, claims, tree, snapshot.policy, snapshot.now)
    first = claimants.express | entitled
    patient = waits_for_leavers(snapshot, layout, contract, claimants.placeable, claimants.promise, first)
    lost = lost_costs(contract, snapshot.policy, snapshot.now)
    gangs = claims.gang & entitled & ~claimants.express
    found = arrange(
        Facts(
            snapshot, layout, tree, contract, places, market, demand.first_submit, gangs, since, claimants.promise,
            claimants.placeable, patient, lost[1],
        )
    )  # fmt: skip
    ent = Entitlement(
        snapshot=snapshot,
        layout=_with_limits(layout, found),
        tree=tree,
        market=_with_holds(market, tree, places, contract, found),
        works=_table(Rows(snapshot, tree, contract, places, claimants, market, entitled, since, patient, *lost), found),
        express_room=claimants.lane_room,
        warnings=tuple(warnings_of(tree, layout, places.leaf, alarm)),
        reserved=found.reserved,
        own_limit=found.own_limit,
        lapsing=found.lapsing,
        columns=columns,
        placements=contract.placements,
        health=check,
        spreads=_spreads(snapshot, layout, like),
        texts=Texts() if like is None else like.texts,
    )
    moves = movable(ent, contract, claimants.placeable)
    return replace(ent, works=replace(ent.works, movable=moves)) if moves.any() else ent


def _tree(snapshot: Snapshot, layout: Layout, columns: Columns, like: Entitlement | None) -> BudgetTree:
    """The budget tree: that of another instant, if it was built from the same."""
    same = like is not None and like.snapshot.budgets == snapshot.budgets and like.layout.pools == layout.pools
    leaves = like.tree.own_leaves if like is not None and same else leaves_of(snapshot.budgets)
    orphans = stray_allocations(columns, leaves, snapshot.now)
    if like is not None and same and sorted(like.tree.orphans) == orphans:
        return like.tree
    return build_tree(snapshot.budgets, layout.pools, orphans)


def _budget(policy: Policy, tree: BudgetTree, installed: IntArray, like: Entitlement | None) -> IntArray:
    """The budgets: those of another instant, if they come to the same."""
    if (
        like is not None
        and like.tree is tree
        and like.snapshot.policy == policy
        and np.array_equal(like.market.installed, installed)
    ):
        return like.market.budget
    return budgets(tree, installed, policy)


def _spreads(snapshot: Snapshot, layout: Layout, like: Entitlement | None) -> Spreads:
    """What is known of the costs of spread: all that was known at another instant, if nodes and prices are the same."""
    if like is None or like.layout.index is not layout.index or like.snapshot.policy != snapshot.policy:
        return {}
    return like.spreads if like.snapshot.cluster.slowdown == snapshot.cluster.slowdown else {}


def _with_limits(layout: Layout, found: Arrangement) -> Layout:
    """The layout with the instants by which promises must have ended."""
    promise_by = np.minimum(layout.deadline, found.limit)
    promise_by.setflags(write=False)
    return replace(layout, promise_by=promise_by)


def _with_holds(market: Market, tree: BudgetTree, places: Places, contract: Contract, found: Arrangement) -> Market:
    """The market once leases have been renewed and reserved gangs hold their funds."""
    outstanding = market.outstanding.copy()
    now = contract.now
    for row, until in found.renewed.items():
        path = list(tree.path(int(places.leaf[row])))
        outstanding[path, contract.run_pool[row]] += contract.gpus[row] * (until - now)
    return replace(market, available=found.available, outstanding=outstanding)


def _in_order(snapshot: Snapshot) -> Snapshot:
    """The snapshot itself where its workloads stand in canonical order, else its canonical form."""
    ids = list(map(attrgetter("id"), snapshot.workloads))
    in_order = all(map(lt, ids, islice(ids, 1, None)))
    return snapshot if in_order else snapshot.canonical()


def _market(
    policy: Policy,
    tree: BudgetTree,
    installed: IntArray,
    schedulable: IntArray,
    usage: tuple[IntArray, IntArray],
    funds: Funds,
    demand: Demand,
) -> tuple[Market, BoolArray]:
    """Budgets and entitlement by vertex and pool, and in which pools promises take all there is."""
    handed_out, first = MILLI * schedulable, demand.first_submit
    filled = fill(tree, handed_out, usage[0], demand.floor, demand.demand, policy.horizon, first)
    curves = build_curves(tree, policy, schedulable, usage[0], demand.held, demand.demand, filled)
    market = Market(
        installed=installed,
        schedulable=schedulable,
        budget=funds.budget,
        usage=usage[0],
        uncharged_usage=usage[1],
        outstanding=funds.outstanding,
        available=funds.available,
        available_before=funds.available_before,
        held=demand.held,
        floor=demand.floor,
        demand=demand.demand,
        entitled=filled.entitled,
        owed=filled.owed,
        level=filled.level,
        curves=curves,
    )
    return market, filled.alarm


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """What the table is made of; arrays of shape (num_workloads,) as in `WorkTable`."""

    snapshot: Snapshot
    tree: BudgetTree
    contract: Contract
    places: Places
    claimants: Claimants
    market: Market
    entitled: BoolArray
    since: IntArray
    patient: BoolArray
    lost: IntArray
    lost_cost: IntArray


def _table(rows: Rows, found: Arrangement) -> WorkTable:
    """What is known of each workload."""
    snapshot, tree, contract, places, claimants = rows.snapshot, rows.tree, rows.contract, rows.places, rows.claimants
    works, policy = snapshot.workloads, snapshot.policy
    renewed, due, prepaid, until = _arranged(contract, found)
    promise = _promises(rows, found, prepaid)
    forced = contract.forced.copy()
    forced[[row for one in found.reserved for row in one.victims]] = Forced.RESERVED
    stays = contract.running & (forced == UNFORCED) & ~contract.terminating
    stoppable = stays & ~contract.protected & ~contract.fresh & ~renewed
    waits = ~contract.running & ~contract.stopped_now
    ranked = np.ones(len(works), dtype=bool)
    ranked[list(claimants.impossible)] = False
    used = (rows.market.usage + rows.market.uncharged_usage).sum(axis=1)
    return WorkTable(
        request=contract.columns.request,
        leaf=places.leaf,
        gpus=contract.gpus,
        promise=promise,
        promise_cost=promise_costs(contract, promise),
        assured=contract.assured,
        unallocated=contract.unallocated,
        home=places.home,
        running=contract.running,
        run_pool=contract.run_pool,
        charged=contract.charged,
        protected=contract.protected | renewed,
        protected_until=until,
        fresh=contract.fresh,
        terminating=contract.terminating,
        ordered=contract.ordered,
        held_before=contract.held_before,
        held_pool=contract.held_pool,
        forced=forced,
        candidate=claimants.placeable & ((waits & ~rows.patient & ~due) | (forced != UNFORCED)),
        renewed=renewed,
        due=due,
        prepaid=prepaid,
        patient=rows.patient & waits & ~due,
        promotable=stays & ~contract.charged & ~contract.unallocated & ~places.orphan,
        stoppable=stoppable,
        licensed=stoppable & _licensed(policy, contract, places, rows.market),
        movable=np.zeros(len(works), dtype=bool),  # told from the rest of the table
        express=claimants.express,
        funded=claimants.funded,
        entitled=rows.entitled,
        entitled_since=rows.since,
        lost_gpu_seconds=rows.lost,
        lost_cost=rows.lost_cost,
        order_cost=order_costs(contract, places, ranked, tree, used, policy),
        impossible=claimants.impossible,
    )


def _arranged(contract: Contract, found: Arrangement) -> tuple[BoolArray, BoolArray, IntArray, IntArray]:
    """Renewed leases, gangs that are due, the pools where gangs hold funds, and until when each run is protected."""
    renewed, due = np.zeros(len(contract.gpus), dtype=bool), np.zeros(len(contract.gpus), dtype=bool)
    prepaid, until = np.full(len(contract.gpus), -1, dtype=np.int64), contract.protected_until.copy()
    for row, end in found.renewed.items():
        renewed[row], until[row] = True, end
    for one in found.reserved:
        due[one.row], prepaid[one.row] = one.due, one.pool
    return renewed, due, prepaid, until


def _promises(rows: Rows, found: Arrangement, prepaid: IntArray) -> IntArray:
    """Seconds promised if it starts now: the last try of work that cannot resume asks for what is left after all holds."""
    promise = promises(rows.contract, rows.places, rows.tree, found.available, rows.snapshot.policy)
    return np.where(prepaid >= 0, rows.claimants.promise, promise)


def _claims(policy: Policy, contract: Contract, places: Places, claimants: Claimants, market: Market) -> Claims:
    return Claims(
        leaf=places.leaf,
        home=places.home,
        gpus=contract.gpus,
        counted=claimants.funded.nonzero()[0],
        express=claimants.express,
        gang=large_gangs(contract.gpus, places.home, market.installed, policy),
        usage=market.usage,
        held=market.held,
        owed=market.owed,
    )


def _licensed(policy: Policy, contract: Contract, places: Places, market: Market) -> BoolArray:
    """Work that may be stopped for the sake of shares: uncharged, or of a leaf that holds more than its entitlement."""
    if policy.preempt_under_entitlement:
        return np.ones(len(contract.gpus), dtype=bool)
    rows = (contract.running & contract.charged).nonzero()[0]
    licensed = contract.running.copy()
    licensed[rows] = (MILLI * market.held > market.entitled)[places.leaf[rows], contract.run_pool[rows]]
    return licensed
