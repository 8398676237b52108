"""Policies by name."""

from __future__ import annotations

from allocator.engine import ENGINES
from allocator.replay.baselines import BASELINES
from allocator.replay.errors import ReplayError
from allocator.replay.policy import SchedulingPolicy
from allocator.replay.product import Budgets

PRODUCT = {"budgets_greedy": "greedy", "budgets": "portfolio"}
"""Our own policies, and the engine of each unless another is asked for."""


def policy_names() -> tuple[str, ...]:
    """All that can be asked for."""
    return (*PRODUCT, *sorted(BASELINES))


def make_policy(
    name: str,
    *,
    drift: int = 300,
    engine: str | None = None,
    time_limit: float = 10.0,
    gap: float = 0.0,
    seed: int = 0,
) -> SchedulingPolicy:
    """A policy, ready for its first decision. The settings are those of `Budgets`; baselines have none.

    Parameters
    ----------
    engine
        For `budgets`: one engine by name in place of the portfolio.

    Raises
    ------
    ReplayError
        If there is no policy of that name, or no such engine, or the policy has none to choose.
    """
    if engine is not None and (name != "budgets" or engine not in ENGINES):
        raise ReplayError(f"no engine {engine!r} for {name}: budgets takes one of {', '.join(ENGINES)}")
    if name in PRODUCT:
        return Budgets(name, engine or PRODUCT[name], drift, time_limit, gap, seed)
    if name in BASELINES:
        return BASELINES[name]()
    raise ReplayError(f"unknown policy {name!r}: choose one of {', '.join(policy_names())}")
