"""The budget tree as the baselines see it: parents, parts, and the teams that hold budgets."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property

from allocator.domain import Allocation


class Teams:
    """Reads a budget tree.

    A team is the lowest vertex on the way up from a leaf that funds: a project, where researchers do not.
    """

    def __init__(self, budgets: Sequence[Allocation]) -> None:
        self.budgets = budgets
        self._vertices = {vertex.id: vertex for vertex in budgets}
        self._team: dict[str, str] = {}
        self._part: dict[tuple[str, str | None], float] = {}
        self._weight: dict[tuple[str, str | None], float] = {}

    @cached_property
    def children(self) -> dict[str | None, list[str]]:
        """Ids of the children of each vertex, sorted; None: the vertices at the top."""
        found: dict[str | None, list[str]] = {}
        for vertex in sorted(self.budgets, key=lambda vertex: vertex.id):
            found.setdefault(vertex.parent, []).append(vertex.id)
        return found

    def path(self, leaf: str) -> Iterator[str]:
        """The vertices from a leaf to the top; only the leaf itself if it is unknown."""
        at: str | None = leaf
        while at is not None:
            yield at
            vertex = self._vertices.get(at)
            at = None if vertex is None else vertex.parent

    def team_of(self, leaf: str) -> str:
        """The vertex that funds a leaf; the leaf itself if none does."""
        if leaf not in self._team:
            funding = (one for one in self.path(leaf) if one in self._vertices and self._vertices[one].funds)
            self._team[leaf] = next(funding, leaf)
        return self._team[leaf]

    def weight(self, vertex: str, pool: str | None = None) -> float:
        """Share among the siblings."""
        key = (vertex, pool)
        if key not in self._weight:
            found = self._vertices[vertex]
            self._weight[key] = float(found.share if pool is None else found.share_by_pool.get(pool, found.share))
        return self._weight[key]

    def part(self, vertex: str, pool: str | None = None) -> float:
        """Share of the whole: the product of normalised shares along the path; 0 for a vertex that is unknown."""
        key = (vertex, pool)
        if key not in self._part:
            self._part[key] = math.prod(self._normalised(one, pool) for one in self.path(vertex))
        return self._part[key]

    def _normalised(self, vertex: str, pool: str | None) -> float:
        if vertex not in self._vertices:
            return 0.0
        total = sum(self.weight(sibling, pool) for sibling in self.children[self._vertices[vertex].parent])
        return self.weight(vertex, pool) / total if total else 0.0

    @cached_property
    def teams(self) -> list[str]:
        """All teams, sorted."""
        leaves = [vertex.id for vertex in self.budgets if vertex.id not in self.children]
        return sorted({self.team_of(leaf) for leaf in leaves})


class TeamsOf:
    """Remembers the teams of the last budgets, which rarely change."""

    def __init__(self) -> None:
        self._last: Teams | None = None

    def __getstate__(self) -> dict[str, object]:
        """Nothing: it follows from the next budgets."""
        return {}

    def __setstate__(self, state: dict[str, object]) -> None:
        """Begin anew."""
        self._last = None

    def __call__(self, budgets: Sequence[Allocation]) -> Teams:
        """The teams of these budgets."""
        if self._last is None or self._last.budgets is not budgets:
            self._last = Teams(budgets)
        return self._last
