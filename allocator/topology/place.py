"""A concrete placement of one gang: as few domains as possible from coarse to fine, and tight, so that whole ones stay so."""

from __future__ import annotations

import numpy as np

from allocator.domain import Workload
from allocator.topology.gang import WHOLE_POOL, Offer, Request, offer_of, request_of, sum_by
from allocator.topology.layout import GPUS, IntArray, Layout


def pool_order(layout: Layout, work: Workload) -> list[int]:
    """Accepted pools, best first: as the workload names them; where it names none, by installed GPUs, then name."""
    if work.pools:
        return [layout.pools.index(name) for name in dict.fromkeys(work.pools) if name in layout.pools]
    installed = sum_by(layout.pool, layout.capacity[GPUS], len(layout.pools))
    return sorted(range(len(layout.pools)), key=lambda pool: (-installed[pool], pool))


def place_tasks(layout: Layout, work: Workload, room: IntArray) -> dict[int, int] | None:
    """Place the gang: node -> tasks, None where it does not fit.

    `room` is the number of tasks that each node takes, 0 where the workload is not eligible, shape (num_nodes,). The
    first accepted pool that holds the gang is taken; in it the finest, tightest domain that does (least room left; among
    equals the one in the fullest surroundings, then the first); inside it the largest parts first, and the tightest for
    what is left over.
    """
    request = request_of(layout, work)
    if request is None:
        return None
    for pool in pool_order(layout, work):
        nodes = ((layout.pool == pool) & (room > 0)).nonzero()[0]
        placement = _Placer(layout.domain[:, nodes], room[nodes], request).place()
        if placement is not None:
            return {int(nodes[node]): tasks for node, tasks in sorted(placement.items())}
    return None


class _Placer:
    """Places one gang on some nodes of one pool. Nodes are numbered from 0; `domain` has shape (num_levels, num_nodes)."""

    def __init__(self, domain: IntArray, room: IntArray, request: Request) -> None:
        self.domain = domain
        self.room = room
        self.request = request
        self.node_level = len(domain) - 1
        self.placement: dict[int, int] = {}

    def place(self) -> dict[int, int] | None:
        """Fill the finest and tightest domain that holds the gang, at most as coarse as the required level."""
        request = self.request
        everything = np.arange(len(self.room))
        for level in range(self.node_level, request.required - 1, -1):
            parts, offer = self._offers(everything, level)
            whole, rest = self._amount(level, request.whole, request.rest)
            fitting = offer.holds(whole, rest).nonzero()[0]
            if len(fitting) and len(everything):
                chosen = self._tightest(parts, offer, fitting, level)
                self._fill((parts == chosen).nonzero()[0], level, request.whole, request.rest)
                return self.placement
        return None

    def _amount(self, level: int, whole: int, rest: int) -> tuple[int, int]:
        """Segments and remainder as the offers of a level count them: below the segment level, single tasks."""
        return (whole, rest) if level <= self.request.level else (whole * self.request.size + rest, 0)

    def _offers(self, nodes: IntArray, level: int) -> tuple[IntArray, Offer]:
        """Part of each node when `nodes` are split by the domains of a level, and what each part offers."""
        if level == WHOLE_POOL:
            part = np.zeros(len(nodes), dtype=np.int64)
        else:
            _, part = np.unique(self.domain[level, nodes], return_inverse=True)
        size = self.request.size if level <= self.request.level else 1
        _, segment = np.unique(self.domain[self.request.level, nodes], return_inverse=True)
        num_parts = int(part.max(initial=0)) + 1
        return part, offer_of(segment, part, self.room[nodes], size, len(nodes), num_parts)

    def _tightest(self, part: IntArray, offer: Offer, fitting: IntArray, level: int) -> int:
        """The fitting part with least room; among equals the one in the fullest surroundings, then the first."""
        for measure in (offer.whole, offer.tasks):
            fitting = fitting[measure[fitting] == measure[fitting].min()]
        first = np.zeros(len(offer.tasks), dtype=np.int64)
        first[part[::-1]] = np.arange(len(part))[::-1]
        for coarser in range(level - 1, -1, -1):
            if len(fitting) == 1:
                break
            around = sum_by(self.domain[coarser], self.room, int(self.domain[coarser].max()) + 1)
            measure = around[self.domain[coarser, first[fitting]]]
            fitting = fitting[measure == measure.min()]
        return int(fitting[0])

    def _fill(self, nodes: IntArray, level: int, whole: int, rest: int) -> None:
        """Place that many segments and that remainder on nodes of one domain that hold them."""
        if level >= self.request.level or self.request.size == 1:
            self._fill_tasks(nodes, level, whole * self.request.size + rest)
            return
        part, offer = self._offers(nodes, level + 1)
        for chosen, segments, remainder in _share_out(offer, whole, rest):
            self._fill(nodes[part == chosen], level + 1, segments, remainder)

    def _fill_tasks(self, nodes: IntArray, level: int, tasks: int) -> None:
        """Place tasks without regard to segments: largest parts first, the tightest for the last of them."""
        if level == self.node_level:
            self.placement[int(nodes[0])] = tasks
            return
        _, part = np.unique(self.domain[level + 1, nodes], return_inverse=True)
        room = sum_by(part, self.room[nodes], int(part.max()) + 1)
        order = np.argsort(-room, kind="stable")
        filled = np.cumsum(room[order])
        num_full = int(np.searchsorted(filled, tasks))
        left = tasks - (int(filled[num_full - 1]) if num_full else 0)
        others = order[num_full:]
        last = others[room[others] >= left][-1]
        last = others[room[others] == room[last]][0]
        if level + 1 == self.node_level:
            self.placement.update((int(nodes[node]), int(room[node])) for node in order[:num_full])
            self.placement[int(nodes[last])] = left
            return
        for chosen in order[:num_full]:
            self._fill_tasks(nodes[part == chosen], level + 1, int(room[chosen]))
        self._fill_tasks(nodes[part == last], level + 1, left)


def _share_out(offer: Offer, whole: int, rest: int) -> list[tuple[int, int, int]]:
    """Split segments and a remainder over few parts that hold them together: rows (part, segments, remainder)."""
    shares: list[tuple[int, int, int]] = []
    order = list(np.argsort(-offer.whole, kind="stable"))
    while whole or rest:
        fitting = [part for part in order if offer.whole[part] > whole or _exactly(offer, part, whole, rest)]
        if fitting:
            last = min(fitting, key=lambda part: (offer.whole[part], offer.tasks[part], part))
            return [*shares, (int(last), whole, rest)]
        part = order.pop(0)
        segments = int(offer.whole[part])
        others_hold_rest = offer.whole[order].sum() > whole - segments or any(offer.rest[order] >= rest)
        shares.append((int(part), segments, 0 if others_hold_rest else rest))
        whole, rest = whole - segments, rest if others_hold_rest else 0
    return shares


def _exactly(offer: Offer, part: int, whole: int, rest: int) -> bool:
    return bool(offer.whole[part] == whole and offer.rest[part] >= rest)
