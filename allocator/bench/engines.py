"""Whatever can decide a snapshot: the engines of the product, and those that a benchmark brings along."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from allocator.domain import Decision, Issue, Snapshot, SnapshotError
from allocator.engine import ENGINES, allocate

Solve = Callable[[Snapshot, float, int], Decision]
"""Decides a snapshot within so many seconds, with a seed."""

_GUESTS: dict[str, Solve] = {}


def register(name: str, solve: Solve) -> None:
    """Make a further engine known under a name, for this process."""
    if name in ENGINES:
        raise ValueError(f"{name!r} is an engine of the product")
    _GUESTS[name] = solve


def engine_names() -> tuple[str, ...]:
    """All engines, the product's own first."""
    return (*ENGINES, *_GUESTS)


def solver_of(name: str) -> Solve:
    """How an engine is called.

    Raises
    ------
    SnapshotError
        If no engine has that name.
    """
    if name in _GUESTS:
        return _GUESTS[name]
    if name not in ENGINES:
        remedy = f"choose one of {', '.join(engine_names())}"
        raise SnapshotError([Issue(path="engine", problem=f"no engine is called {name!r}", remedy=remedy)])
    return partial(_allocate, name)


def _allocate(engine: str, snapshot: Snapshot, budget: float, seed: int) -> Decision:
    return allocate(snapshot, time_limit=budget, engine=engine, seed=seed)
