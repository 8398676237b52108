"""From entitlement to the epoch problem: the order of the steps."""

from __future__ import annotations

from operator import attrgetter

import numpy as np

from allocator.entitlement import Entitlement
from allocator.entitlement.costs import fragmentation_cost
from allocator.entitlement.forced import UNFORCED
from allocator.entitlement.fresh import ordinary_starts
from allocator.epoch.classes import Nodes, build_cells, build_classes, cell_level
from allocator.epoch.offers import build_offers, build_shapes, draft_offers, drop_unneeded, number_queues
from allocator.epoch.problem import EpochProblem
from allocator.epoch.reach import Reach, within_reach
from allocator.epoch.rows import funding_rows, limit_rows, share_terms
from allocator.epoch.taken import taken
from allocator.epoch.victims import build_promotions, build_victims
from allocator.epoch.whole import whole_domains, whole_placed, whole_weight
from allocator.topology.layout import UNLIMITED, IntArray


def compile_epoch(ent: Entitlement, *, all_offers: bool = False) -> EpochProblem:
    """Reduce one epoch to arrays: what may start, what may stop, where, and what it is worth.

    Parameters
    ----------
    ent
        The facts that hold before the decision.
    all_offers
        With the offers that fit in no decision: to try the rules of the models on them.

    Returns
    -------
    EpochProblem
        Shared by all engines; nothing in it refers to names but `names`.
    """
    free, drafted = free_room(ent), draft_offers(ent)
    victims = build_victims(ent, drafted)
    promotions = build_promotions(ent, victims)
    reach = Reach(ent.layout, np.full_like(free, UNLIMITED) if all_offers else free, victims)
    ranked = number_queues(ent, drop_unneeded(ent, within_reach(drafted, reach)), reach.units)
    shapes, shape = build_shapes(ent, ranked)
    offers = build_offers(ent, ranked, shape, victims)
    whole, placed = whole_weight(ent), whole_placed(ent)
    domains = whole_domains(ent, placed)
    cells = build_cells(ent, cell_level(ent, offers, domains))
    late = ent.placements.on_nodes(ordinary_starts(ent), ent.columns.shape, len(ent.layout.names))
    classes, node_class = build_classes(ent, shapes, victims, cells, Nodes(free, late, whole, placed))
    return EpochProblem(
        num_levels=len(ent.layout.levels),
        capacity=ent.layout.capacity,
        free=free,
        node_pool=ent.layout.pool,
        node_domain=ent.layout.domain,
        node_class=node_class,
        cell_domain=cells.domain,
        cell_pool=cells.pool,
        shapes=shapes,
        offers=offers,
        victims=victims,
        promotions=promotions,
        classes=classes,
        funding=funding_rows(ent, offers, promotions),
        limits=limit_rows(ent, offers, victims),
        shares=share_terms(ent, offers, victims, promotions),
        whole_weight=whole,
        whole_placed=placed,
        whole_domains=domains,
        fragmentation_cost=fragmentation_cost(ent.snapshot.policy),
        express_room=_express_room(ent),
        late=late,
        max_stops=_stops_left(ent),
        step_gpus=max(1, ent.snapshot.policy.planning_step * int(ent.market.schedulable.sum())),
        names=tuple(map(attrgetter("id"), ent.snapshot.workloads)),
    )


def free_room(ent: Entitlement) -> IntArray:
    """GPUs, CPUs and GiB that all runs but the forced stops, and the gangs whose reservation is due, leave on each node, shape
    (3, num_nodes)."""
    return np.asarray(ent.layout.capacity - taken(ent, ent.works.running))


def _express_room(ent: Entitlement) -> IntArray:
    """GPUs of each pool's lane that are not held by express runs, those that start at now included."""
    room = ent.express_room.copy()
    works = ent.works
    for row in (works.running & works.fresh & (works.forced == UNFORCED)).nonzero()[0]:
        run = ent.snapshot.workloads[int(row)].run
        if run is not None and run.express:
            room[works.run_pool[row]] -= works.gpus[row]
    return room


def _stops_left(ent: Entitlement) -> int | None:
    """How many licensed stops of charged work the policy leaves, those at this very instant counted."""
    limit = ent.snapshot.policy.max_preemptions
    if limit is None:
        return None
    rows = np.flatnonzero(ent.columns.stopped_at == ent.snapshot.now).tolist()
    stops = (ent.snapshot.workloads[row].stopped for row in rows)
    done = sum(stop is not None and stop.charged for stop in stops)
    return max(0, limit - done)
