"""When promises give nodes back, as seen just before `now`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from allocator.entitlement.contract import Contract
from allocator.entitlement.forced import UNFORCED
from allocator.topology import BoolArray, IntArray, Layout


@dataclass(slots=True, eq=False)
class Releases:
    """`row[r]` is the instant from which the GPUs of a run may be had, 0 where they may be had at any time or it does not
    run, shape (num_workloads,); `node[n]` the latest of those on a node, shape (num_nodes,). `actual[n]` counts the promises
    made at this very instant too."""

    row: IntArray
    node: IntArray
    actual: IntArray

    def promise(self, row: int, nodes: Iterable[int], until: int) -> tuple[IntArray, IntArray, IntArray]:
        """Make a promise; returns what `restore` needs to take it back."""
        saved = self.row.copy(), self.node.copy(), self.actual.copy()
        self.row[row] = until
        where = list(nodes)
        self.node[where] = np.maximum(self.node[where], until)
        self.actual[where] = np.maximum(self.actual[where], until)
        return saved

    def restore(self, saved: tuple[IntArray, IntArray, IntArray]) -> None:
        """Take back the last promise."""
        self.row, self.node, self.actual = saved


def read_releases(layout: Layout, contract: Contract, notice: int, now: int) -> Releases:
    """Promises of everything that runs, but for starts and promotions at this very instant.

    A victim that is leaving is gone at its time; one that is overdue is expected to need another notice. An ordered start
    is fixed until it has begun.
    """
    row = np.zeros(len(contract.running), dtype=np.int64)
    stays, made = contract.forced == UNFORCED, made_now(contract, now)
    holds = contract.protected & stays
    early = holds & ~made
    row[early] = contract.protected_until[early]
    ordered = contract.ordered & stays
    row[ordered] = np.maximum(row[ordered], contract.start[ordered] + 1)
    leaves = contract.columns.leaves[contract.terminating]
    row[contract.terminating] = np.where(leaves > now, leaves, now + max(1, notice))
    places = contract.placements
    here, late = places.node[places.present], places.row[places.present]
    node = np.zeros(len(layout.names), dtype=np.int64)
    np.maximum.at(node, here, row[late])
    actual = node.copy()
    np.maximum.at(actual, here, np.where(holds & made, contract.protected_until, 0)[late])
    return Releases(row, node, actual)


def made_now(contract: Contract, now: int) -> BoolArray:
    """Runs whose promise was made at this very instant, by a start or a promotion."""
    started = contract.fresh & (contract.start <= now)
    promoted = contract.running & ~contract.fresh & contract.charged & ~contract.charged_before
    mask: BoolArray = started | promoted
    return mask
