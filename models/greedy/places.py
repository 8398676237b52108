"""Where units lie, as rows of the relaxation: what nodes hold, beside whom, and in which domains."""

from __future__ import annotations

import numpy as np

from allocator.epoch.problem import EpochProblem
from allocator.epoch.solution import EpochSolution
from allocator.models.greedy.groups import Groups, forms_of, pairs_of_equals
from allocator.models.greedy.licence import gpus_decide
from allocator.models.greedy.linear import LinearModel
from allocator.models.greedy.news import FloatArray
from allocator.models.greedy.patterns import Bundle
from allocator.models.greedy.segments import Segments
from allocator.topology.layout import CPUS, GPUS, MEMORY, UNLIMITED, BoolArray, IntArray

MOST_PLACES = 2_000
"""Domains times kinds of blocks beyond which greedy does without: at 46,000 GPUs in racks it took five times as long so."""


MOST_WHOLE = 1_000
"""Counts of units that are all whole numbers. That proved in half a second what took more than 30 without, and from 1,200 on
it took twice to three times as long as to choose few of them."""


class Counts:
    """What is counted: units of a form in a group, nodes that follow a pattern, blocks of a kind in a domain.

    Attributes
    ----------
    form, group
        Of each count of units.
    kind, domain, most
        Of each count of blocks, and how many the domain could hold were all victims gone.
    whole
        Which counts of units are whole numbers where choices are: with blocks all, if they are few, else those that excuse
        stops without a licence. Fractions could claim a quarter of a node each on four nodes that are wanted whole.
    """

    def __init__(self, problem: EpochProblem, *, merged: bool) -> None:
        self._problem = problem
        self.form_of_shape, self.first = forms_of(problem)
        self.segments = Segments(problem, self.form_of_shape)
        level = -1 if merged and self.segments.num_places > MOST_PLACES else self.segments.level
        self.groups = Groups(problem, self.form_of_shape, self.first, merged=merged, level=level)
        self.form, self.group = np.nonzero(self.groups.most)
        self.kind, self.domain, self.most = self._blocks() if level >= 0 else np.zeros((3, 0), dtype=np.int64)
        self.whole = self._whole() if len(self.kind) else np.zeros(len(self.form), dtype=np.bool_)

    @property
    def num_columns(self) -> int:
        """Columns for all of that."""
        return len(self.form) + sum(len(bundle.counts) for bundle in self.groups.bundles) + len(self.kind)

    def whole_of(self, solution: EpochSolution) -> FloatArray:
        """The values of all whole counts in a decision, in the order of their columns."""
        if not len(self.kind):
            return np.zeros(0)
        units, blocks = np.zeros(self.groups.most.shape), self.segments.blocks_of(solution)
        for j, placement in solution.starts.items():
            form = self.form_of_shape[self._problem.offers.shape[j]]
            for node, number in placement.items():
                units[form, self.groups.of_class[self._problem.node_class[node]]] += number
        places = zip(self.kind.tolist(), self.domain.tolist(), strict=True)
        found = [blocks[self.segments.kinds[kind], domain] for kind, domain in places]
        return np.concatenate([units[self.form, self.group][self.whole], found])

    def _whole(self) -> BoolArray:
        groups, licensed = self.groups, self._problem.victims.licensed
        if len(self.form) <= MOST_WHOLE:
            return np.ones(len(self.form), dtype=np.bool_)
        return np.isin(self.group, groups.leaves_in[~licensed[groups.victim]]) & (groups.node[self.group] >= 0)

    def _blocks(self) -> IntArray:
        """Kind, domain and the most of each count of blocks, shape (3, number of them)."""
        found = []
        for i, kind in enumerate(self.segments.kinds):
            room = np.bincount(self.segments.domains(kind, self.groups.cell), weights=self.groups.most[kind.form])
            most = room.astype(np.int64) // kind.size
            found += [(i, domain, int(most[domain])) for domain in np.flatnonzero(most).tolist()]
        return np.array(found, dtype=np.int64).reshape(-1, 3).T


class Places:
    """Adds the counts and their rows to the model.

    Parameters
    ----------
    start, stop
        The columns of offers and victims.
    """

    def __init__(self, problem: EpochProblem, counts: Counts, rows: LinearModel, start: IntArray, stop: IntArray) -> None:
        self._problem, self._counts, self._rows, self._start, self._stop = problem, counts, rows, start, stop
        self._room = counts.groups
        self._need = problem.shapes.need[:, counts.first]
        self._count = np.zeros(0, dtype=np.int64)

    def add_all(self) -> None:
        """All columns and rows."""
        self._placement()
        self._capacity()
        self._packing()
        for group, bundle in zip(self._room.bundled.tolist(), self._room.bundles, strict=True):
            self._patterns(group, bundle)
        self._blocks()
        self._licence()

    def _placement(self) -> None:
        """As many units of every form as start."""
        counts, offers = self._counts, self._problem.offers
        most = self._room.most[counts.form, counts.group]
        self._count = self._rows.columns(np.zeros(len(most)), most, whole=counts.whole)
        balance = self._rows.rows(0.0, np.zeros(len(counts.first)))
        self._rows.put(balance[counts.form], self._count, 1.0)
        self._rows.put(balance[counts.form_of_shape[offers.shape]], self._start, -offers.units)

    def _capacity(self) -> None:
        """On every group without patterns no more than is free or left."""
        room, need, form, group = self._room, self._need, self._counts.form, self._counts.group
        for resource in (GPUS, CPUS, MEMORY):
            bound = np.setdiff1d(np.flatnonzero(room.free[resource] < UNLIMITED // 2), room.bundled)
            if resource != GPUS and not (len(bound) and need[resource].any()):
                continue
            row = np.full(room.free.shape[1], -1)
            row[bound] = self._rows.rows(-np.inf, room.free[resource, bound])
            inside = row[group] >= 0
            self._rows.put(row[group[inside]], self._count[inside], need[resource, form[inside]])
            inside = row[room.leaves_in] >= 0
            self._rows.put(row[room.leaves_in[inside]], self._stop[room.victim[inside]], -room.leaves[resource, inside])

    def _packing(self) -> None:
        """Units of a size use whole multiples of it: on one node, what a victim holds cuts more than its own GPUs from them."""
        group, size, victim, least, most = self._room.cuts
        if not len(group):
            return
        need = self._need[GPUS, self._counts.form]
        cut, unit = pairs_of_equals(group, self._counts.group)
        large = need[unit] >= size[cut]
        used, which = np.unique(cut[large], return_inverse=True)
        row = self._rows.rows(-np.inf, least[used].astype(np.float64))
        self._rows.put(row[which], self._count[unit[large]], need[unit[large]])
        held = victim[used] >= 0
        self._rows.put(row[held], self._stop[victim[used[held]]], (least - most)[used[held]])

    def _patterns(self, group: int, bundle: Bundle) -> None:
        """What starts and what stays on the nodes of a group is no more than patterns give, one for each node."""
        nodes, num_patterns = bundle.nodes, len(bundle.counts)
        follow = self._rows.columns(np.zeros(num_patterns), np.full(num_patterns, nodes))
        stay = np.array([sum(number for _, number in victims) for victims in bundle.victims], dtype=np.float64)
        row = self._rows.rows(-np.inf, np.concatenate([np.zeros(len(bundle.forms)), -stay, [nodes]]))
        self._rows.put(np.repeat(row[-1:], num_patterns), follow, 1.0)
        pattern, item = np.nonzero(bundle.counts)
        self._rows.put(row[item], follow[pattern], -bundle.counts[pattern, item])
        here = self._counts.group == group
        for i, forms in enumerate(bundle.forms):
            own = self._count[here & np.isin(self._counts.form, forms)]
            self._rows.put(np.repeat(row[i], len(own)), own, 1.0)
        for i, victims in enumerate(bundle.victims, len(bundle.forms)):
            victim, number = np.array(victims, dtype=np.int64).T
            self._rows.put(np.repeat(row[i], len(victim)), self._stop[victim], -number)

    def _blocks(self) -> None:
        """As many blocks of every kind as start, whole ones, and no more of them in a domain than there are units."""
        counts, segments = self._counts, self._counts.segments
        if not len(counts.kind):
            return
        block = self._rows.columns(np.zeros(len(counts.kind)), counts.most, whole=True)
        balance = self._rows.rows(0.0, np.zeros(len(segments.kinds)))
        self._rows.put(balance[counts.kind], block, 1.0)
        self._rows.put(balance[segments.kind], self._start[segments.offer], -segments.number)
        level, form, size = np.array(segments.kinds, dtype=np.int64)[counts.kind].T
        (at, of_form, inside), which = np.unique(np.stack([level, form, counts.domain]), axis=1, return_inverse=True)
        row = self._rows.rows(-np.inf, np.zeros(len(at)))
        self._rows.put(row[which], block, size)
        for one in set(at.tolist()):
            own, domain = np.flatnonzero(at == one), self._problem.cell_domain[one, self._room.cell[counts.group]]
            num_forms = len(counts.first)
            place, unit = pairs_of_equals(inside[own] * num_forms + of_form[own], domain * num_forms + counts.form)
            self._rows.put(row[own[place]], self._count[unit], -1.0)

    def _licence(self) -> None:
        """Charged work without a licence stops only where express units lie, or to move."""
        unlicensed, room = np.flatnonzero(~self._problem.victims.licensed), self._room
        if not len(unlicensed):
            return
        express = np.flatnonzero(self._problem.shapes.express[self._counts.first[self._counts.form]])
        row = np.full(len(self._stop), -1)
        row[unlicensed] = self._rows.rows(-np.inf, np.zeros(len(unlicensed)))
        self._rows.put(row[unlicensed], self._stop[unlicensed], 1.0)
        held = np.unique(np.stack([row[room.victim], room.leaves_in]), axis=1)
        held = held[:, held[0] >= 0]
        place, unit = pairs_of_equals(held[1], self._counts.group[express])
        self._rows.put(held[0, place], self._count[express[unit]], -1.0)
        moves = self._moves_of(unlicensed)
        self._rows.put(row[unlicensed[moves[0]]], moves[1], -1.0)
        self._needed_places(unlicensed, express)

    def _moves_of(self, victims: IntArray) -> tuple[IntArray, IntArray]:
        """The starts of victims that move: positions in `victims`, and columns."""
        moves = np.flatnonzero(self._problem.offers.victim >= 0)
        place, which = pairs_of_equals(victims, self._problem.offers.victim[moves])
        return place, self._start[moves[which]]

    def _needed_places(self, unlicensed: IntArray, express: IntArray) -> None:
        """On its only node: express units take so much of what is free or left by others that a victim does not fit there."""
        problem, room = self._problem, self._room
        num_nodes = np.array([len(nodes) for nodes in problem.victims.nodes], dtype=np.int64)
        alone = np.isin(room.victim, unlicensed[num_nodes[unlicensed] == 1]) & (room.node[room.leaves_in] >= 0)
        alone &= gpus_decide(problem)[room.node[room.leaves_in]]
        own = np.flatnonzero(alone)
        own = own[np.argsort(room.victim[own])]
        victim, group, gpus = room.victim[own], room.leaves_in[own], room.leaves[GPUS]
        node = room.node[group]
        left = np.bincount(room.leaves_in, weights=gpus, minlength=len(room.node))[group] - gpus[own]
        most = problem.free[GPUS, node] + problem.late[GPUS, node] + 1 + left
        row = self._rows.rows(-left, np.full(len(own), np.inf))
        place, unit = pairs_of_equals(group, self._counts.group[express])
        self._rows.put(row[place], self._count[express[unit]], self._need[GPUS, self._counts.form[express[unit]]])
        self._rows.put(row, self._stop[victim], -most)
        place, other = pairs_of_equals(group, room.leaves_in)
        place, other = place[own[place] != other], other[own[place] != other]
        self._rows.put(row[place], self._stop[room.victim[other]], -gpus[other])
        place, restart = self._moves_of(victim)
        self._rows.put(row[place], restart, most[place])
