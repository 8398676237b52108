"""The policy: spans in seconds, limits, and the multipliers of the objective."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpressLane:
    """Short small work that is always funded: at most `gpus` GPUs and `min_runtime` seconds a workload,
    `per_user` workloads a user and `pool_share` of a pool (at least 8 GPUs) at a time."""

    gpus: int = 8
    min_runtime: int = 1800
    pool_share: Fraction = Fraction(1, 20)
    per_user: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Multipliers of the objective's terms, exact."""

    unfairness: Fraction = Fraction(2)
    express: Fraction = Fraction(10)
    idle: Fraction = Fraction(1)
    lost_work: Fraction = Fraction(3, 2)
    spread: Fraction = Fraction(1)
    fragmentation: Fraction = Fraction(1, 100)
    order: Fraction = Fraction(1, 1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Everything an operator may tune. `half_life` replaces the hard window where it is given; `max_preemptions` bounds
    the stops of licensed allocated work in one decision; `reserve_from` is a share of the pool."""

    window: int = 604_800
    horizon: int = 14_400
    protection_cap: int = 28_800
    planning_step: int = 3_600
    half_life: int | None = None
    notice: int = 120
    preempt_under_entitlement: bool = False
    max_preemptions: int | None = None
    reserve_from: Fraction = Fraction(1, 4)
    express: ExpressLane = field(default_factory=ExpressLane)
    weights: Weights = field(default_factory=Weights)
