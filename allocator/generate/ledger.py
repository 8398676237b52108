"""Budgets while a snapshot is made: what may still be promised, so that the snapshot does not contradict its budgets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np

from allocator.domain import Allocation, Policy
from allocator.generate.organisation import Project


class Ledger:
    """Budget, usage and open promises of every vertex that funds, by pool, in GPU-seconds.

    A project's usage is the larger of its target for the week, which records will make up, and what its running work has
    used already.
    """

    def __init__(self, budgets: Sequence[Allocation], installed: Mapping[str, int], policy: Policy) -> None:
        self._parent = {vertex.id: vertex.parent for vertex in budgets}
        self._funds = {vertex.id: vertex.funds for vertex in budgets}
        self._span = policy.window + policy.protection_cap
        self._installed = dict(installed)
        self._shares = _path_shares(budgets, list(installed))
        self._target: dict[tuple[str, str], int] = {}
        self._running: dict[tuple[str, str], int] = {}
        self._usage: dict[tuple[str, str], int] = {}
        self._promised: dict[tuple[str, str], int] = {}

    def budget(self, vertex: str, pool: str) -> int:
        """Budget in GPU-seconds, rounded down."""
        return int(self._shares[vertex, pool] * self._installed[pool] * self._span)

    def set_target(self, project: str, pool: str, gpu_seconds: int) -> None:
        """Fix what the project will have used in the window once history is written."""
        self._target[project, pool] = gpu_seconds
        self._settle(project, pool)

    def missing_usage(self, project: str, pool: str) -> int:
        """Charged GPU-seconds that records must add to what runs."""
        return max(0, self._target.get((project, pool), 0) - self._running.get((project, pool), 0))

    def fits(self, leaf: str, pool: str, used: int, promised: int, *, tolerance: float = 1.0) -> bool:
        """Whether a charged run with this usage so far and this open promise leaves every budget on its path whole."""
        project = self._project(leaf)
        before = self._usage.get((project, pool), 0)
        after = max(self._target.get((project, pool), 0), self._running.get((project, pool), 0) + used)
        for vertex in self._path(project):
            usage = self._usage.get((vertex, pool), 0) + after - before
            if usage + self._promised.get((vertex, pool), 0) + promised > tolerance * self.budget(vertex, pool):
                return False
        return True

    def book(self, leaf: str, pool: str, used: int, promised: int) -> None:
        """Record a charged run."""
        project = self._project(leaf)
        self._running[project, pool] = self._running.get((project, pool), 0) + used
        self._settle(project, pool)
        for vertex in self._path(project):
            self._promised[vertex, pool] = self._promised.get((vertex, pool), 0) + promised

    def _settle(self, project: str, pool: str) -> None:
        """Bring the usage of the project and of what lies above it up to date."""
        usage = max(self._target.get((project, pool), 0), self._running.get((project, pool), 0))
        added = usage - self._usage.get((project, pool), 0)
        for vertex in self._path(project):
            self._usage[vertex, pool] = self._usage.get((vertex, pool), 0) + added

    def _project(self, leaf: str) -> str:
        """The lowest vertex on the path that funds."""
        vertex: str | None = leaf
        while vertex is not None and not self._funds[vertex]:
            vertex = self._parent[vertex]
        return leaf if vertex is None else vertex

    def _path(self, vertex: str) -> list[str]:
        path = [vertex]
        while (parent := self._parent[path[-1]]) is not None:
            path.append(parent)
        return path


def _path_shares(budgets: Sequence[Allocation], pools: Sequence[str]) -> dict[tuple[str, str], Fraction]:
    """Product of normalised shares of each vertex in each pool. Parents must come before their children."""
    totals: dict[tuple[str | None, str], Fraction] = {}
    for vertex in budgets:
        for pool in pools:
            share = vertex.share_by_pool.get(pool, vertex.share)
            totals[vertex.parent, pool] = totals.get((vertex.parent, pool), Fraction(0)) + share
    shares: dict[tuple[str, str], Fraction] = {}
    for vertex in budgets:
        for pool in pools:
            total = totals[vertex.parent, pool]
            part = vertex.share_by_pool.get(pool, vertex.share) / total if total else Fraction(0)
            above = Fraction(1) if vertex.parent is None else shares[vertex.parent, pool]
            shares[vertex.id, pool] = above * part
    return shares


def draw_targets(rng: np.random.Generator, ledger: Ledger, projects: Sequence[Project], pool: str, capacity: int) -> None:
    """Spread the week's charged time over the projects: some near or over their budget, most ahead or behind by chance.

    `capacity` is the charged GPU-seconds that the pool gave away in the window.
    """
    budgets = np.array([ledger.budget(project.id, pool) for project in projects], dtype=np.float64)
    # Small projects are more often over: where the largest one is, half of the cluster runs free of charge.
    chances = np.array([max(project.part, 1e-6) ** -0.5 for project in projects])
    order = rng.choice(len(projects), size=len(projects), replace=False, p=chances / chances.sum())
    num_over = round(0.12 * len(projects))
    num_near = round(0.15 * len(projects))
    targets = budgets * rng.lognormal(0.0, 0.4, size=len(projects))
    over, near, rest = order[:num_over], order[num_over : num_over + num_near], order[num_over + num_near :]
    targets[over] = budgets[over] * rng.uniform(1.0, 1.08, size=len(over))
    targets[near] = budgets[near] * rng.uniform(0.93, 1.0, size=len(near))
    left = max(0.0, capacity - targets[over].sum() - targets[near].sum())
    if rest.size and targets[rest].sum() > 0:
        targets[rest] = np.minimum(targets[rest] * left / targets[rest].sum(), 0.93 * budgets[rest])
    for project, target in zip(projects, targets, strict=True):
        ledger.set_target(project.id, pool, int(target))
