"""What a rule is handed: the snapshot's entitlement, the decision as read, and the state after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from allocator.domain import Decision, Workload
from allocator.entitlement.costs import Score
from allocator.entitlement.model import Entitlement
from allocator.topology import BoolArray, IntArray
from allocator.verify.after import AfterState, Placed, build_after, placement_arrays, placements_before
from allocator.verify.room import Room
from allocator.verify.rows import Rows, read_rows
from allocator.verify.score import score_of
from allocator.verify.verdict import Violation

RESOURCES = ("GPUs", "CPUs", "GiB")


@dataclass(frozen=True, eq=False)
class Case:
    """One decision to be judged."""

    ent: Entitlement
    decision: Decision
    rows: Rows
    after: AfterState
    score: Score

    @classmethod
    def of(cls, ent: Entitlement, decision: Decision) -> Case:
        """Read the decision and build what the rules share."""
        rows = read_rows(ent, decision)
        starts = {
            row: Placed(rows.placements[row], start.charged, start.charged and start.express)
            for row, start in rows.starts.items()
        }
        after = build_after(ent, rows.stops.keys(), starts, rows.promotions.keys())
        return cls(ent, decision, rows, after, score_of(after))

    @cached_property
    def room(self) -> Room:
        """What is free after the decision; counted where something waits that might use it."""
        return Room(self.after)

    def work(self, row: int) -> Workload:
        """The workload of a row."""
        return self.ent.snapshot.workloads[row]

    def id(self, row: int) -> str:
        """The id of the workload of a row."""
        return self.work(row).id

    def names(self, rows: BoolArray | IntArray, most: int = 5) -> str:
        """Ids of some workloads, for people."""
        chosen = rows.nonzero()[0] if rows.dtype == np.bool_ else rows
        ids = [self.id(row) for row in chosen[:most].tolist()]
        return ", ".join(ids) + (f" and {len(chosen) - most} more" if len(chosen) > most else "")

    def node(self, node: int) -> str:
        """The name of a node."""
        return self.ent.layout.names[node]

    def nodes_of(self, row: int) -> Set[int]:
        """The nodes of the run that the snapshot shows."""
        return placements_before(self.ent).get(row, {}).keys()

    def returning(self, used: IntArray) -> BoolArray:
        """Whether each run of the snapshot would fit where it was beside what is used, its own restart put aside, shape
        (num_workloads,). `used` has shape (3, num_nodes)."""
        before = self.after.before
        beside = used[:, before.node] + before.use - self._restarts
        fits = np.ones(len(self.after.kept), dtype=np.bool_)
        fits[before.row[(beside > self.ent.layout.capacity[:, before.node]).any(axis=0)]] = False
        return fits

    @cached_property
    def _restarts(self) -> IntArray:
        """What the restarts of runs use of the places that they leave, shape (3, number of entries before)."""
        before, again = self.after.before, np.zeros_like(self.after.before.use)
        for entry in self.after.started[before.row].nonzero()[0].tolist():
            row, node = int(before.row[entry]), int(before.node[entry])
            placement = {node: self.after.placement[row].get(node, 0)}
            again[:, entry] = placement_arrays(self.after.shapes[:, row], placement)[1][:, 0]
        return again

    def held_by(self, rows: BoolArray) -> IntArray:
        """GPUs over all pools of the given work, by vertex, shape (num_vertices,)."""
        held = np.zeros(self.after.held.shape[0], dtype=np.int64)
        for row in (rows & (self.ent.works.leaf >= 0)).nonzero()[0].tolist():
            held[list(self.ent.tree.path(int(self.ent.works.leaf[row])))] += self.ent.works.gpus[row]
        return held

    def limited(self, row: int, held: IntArray) -> set[int]:
        """Vertices over a stopped run under which something starts, and whose gpu_limit it would break beside what is held,
        shape (num_vertices,). A move frees nothing there: then there is none."""
        if self.after.started[row]:
            return set()
        tree, works = self.ent.tree, self.ent.works
        over = (v for v in tree.path(int(works.leaf[row])) if 0 <= tree.gpu_limit[v] < held[v] + works.gpus[row])
        return {v for v in over if any(v in tree.path(int(works.leaf[start])) for start in self.rows.starts)}

    def promise_end(self, row: int) -> int:
        """Until when a start or promotion now is protected."""
        return self.ent.snapshot.now + int(self.ent.works.promise[row])


Rule = Callable[[Case], Iterator[Violation]]
"""Judges one case; yields what is broken."""
