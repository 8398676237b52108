"""Everything that holds before a decision: who may have what, and what each choice would cost."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from allocator.domain import Policy, Snapshot
from allocator.entitlement.claimants import Claimants, read_claimants
from allocator.entitlement.contract import Contract, read_contract
from allocator.entitlement.costs import lost_costs, order_costs
from allocator.entitlement.curve import build_curves
from allocator.entitlement.demand import Demand, add_up, installed_gpus, schedulable_gpus
from allocator.entitlement.entitled import Claims, large_gangs, mark_entitled
from allocator.entitlement.funding import Funds, read_funds
from allocator.entitlement.model import Entitlement, Forced, Market, WorkTable
from allocator.entitlement.patience import waits_for_leavers
from allocator.entitlement.places import Places, find_places, stray_allocations, warnings_of
from allocator.entitlement.tree import BudgetTree, build_tree
from allocator.entitlement.usage import window_usage
from allocator.entitlement.waterfill import MILLI, FillResult, fill
from allocator.topology import BoolArray, IntArray, Layout, build_layout


def entitle(snapshot: Snapshot) -> Entitlement:
    """Read the snapshot: contracts, budgets, demand, entitlement, and the cost of every stop and every wait."""
    snapshot = _in_order(snapshot)
    layout = build_layout(snapshot)
    tree = build_tree(snapshot.budgets, layout.pools, stray_allocations(snapshot))
    contract = read_contract(snapshot, layout)
    installed, schedulable = installed_gpus(layout), schedulable_gpus(layout, contract)
    places = find_places(snapshot, layout, tree, contract, installed)
    usage = window_usage(snapshot, tree, layout.pools, snapshot.now)
    funds = read_funds(contract, places, tree, installed, usage[0], snapshot.policy, snapshot.now)
    claimants = read_claimants(snapshot, layout, tree, contract, places, installed, funds)
    demand = add_up(contract, places, claimants.funded, tree, len(layout.pools))
    market, alarm = _market(snapshot.policy, tree, installed, schedulable, usage, funds, demand)
    return Entitlement(
        snapshot=snapshot,
        layout=layout,
        tree=tree,
        market=market,
        works=_table(snapshot, layout, tree, contract, places, claimants, market),
        express_room=claimants.lane_room,
        warnings=tuple(warnings_of(tree, layout, places.leaf, alarm)),
    )


def _in_order(snapshot: Snapshot) -> Snapshot:
    """The snapshot itself where its workloads stand in canonical order, else its canonical form."""
    in_order = all(before.id < after.id for before, after in pairwise(snapshot.workloads))
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
    filled = _fill(policy, tree, schedulable, usage[0], demand.floor, demand)
    owed = _fill(policy, tree, schedulable, usage[0], np.zeros_like(demand.floor), demand)
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
        owed=owed.entitled,
        level=filled.level,
        curves=curves,
    )
    return market, filled.alarm


def _fill(
    policy: Policy, tree: BudgetTree, schedulable: IntArray, usage: IntArray, floor: IntArray, demand: Demand
) -> FillResult:
    return fill(tree, MILLI * schedulable, usage, floor, demand.demand, policy.horizon, demand.first_submit)


def _table(
    snapshot: Snapshot, layout: Layout, tree: BudgetTree, contract: Contract, places: Places, claimants: Claimants, market: Market
) -> WorkTable:
    """What is known of each workload."""
    works, policy, now = snapshot.workloads, snapshot.policy, snapshot.now
    stays = contract.running & (contract.forced == Forced.NONE) & ~contract.terminating
    stoppable = stays & ~contract.protected & ~contract.fresh
    waits = ~contract.running & ~contract.stopped_now
    claims = _claims(policy, contract, places, claimants, market)
    entitled, since = mark_entitled(works, contract, claims, tree, policy, now)
    lost, lost_cost = lost_costs(works, contract, policy, now)
    first = claimants.express | entitled
    patient = waits_for_leavers(snapshot, layout, contract, claimants.placeable, claimants.promise, first)
    ranked = np.ones(len(works), dtype=bool)
    ranked[list(claimants.impossible)] = False
    used = (market.usage + market.uncharged_usage).sum(axis=1)
    return WorkTable(
        leaf=places.leaf,
        gpus=contract.gpus,
        promise=claimants.promise,
        home=places.home,
        running=contract.running,
        run_pool=contract.run_pool,
        charged=contract.charged,
        protected=contract.protected,
        protected_until=contract.protected_until,
        fresh=contract.fresh,
        terminating=contract.terminating,
        ordered=contract.ordered,
        held_before=contract.held_before,
        held_pool=contract.held_pool,
        forced=contract.forced,
        candidate=claimants.placeable & ((waits & ~patient) | (contract.forced != Forced.NONE)),
        patient=patient & waits,
        promotable=stays & ~contract.charged & (contract.min_runtime > 0) & ~places.orphan,
        stoppable=stoppable,
        licensed=stoppable & _licensed(policy, contract, places, market),
        express=claimants.express,
        funded=claimants.funded,
        entitled=entitled,
        entitled_since=since,
        lost_gpu_seconds=lost,
        lost_cost=lost_cost,
        order_cost=order_costs(contract, places, ranked, tree, used, policy),
        impossible=claimants.impossible,
    )


def _claims(policy: Policy, contract: Contract, places: Places, claimants: Claimants, market: Market) -> Claims:
    return Claims(
        places=places,
        gpus=contract.gpus,
        counted=np.flatnonzero(claimants.funded),
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
    rows = np.flatnonzero(contract.running & contract.charged)
    licensed = contract.running.copy()
    licensed[rows] = (MILLI * market.held > market.entitled)[places.leaf[rows], contract.run_pool[rows]]
    return licensed
