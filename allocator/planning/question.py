"""A planning question as the model sees it: everything by quarter, checked, in arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from allocator.planning.document import ReplayDoc
from allocator.planning.utilisation import Utilisation

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """A scalable unit. `pool` is an index, `running` money for each quarter in service, `uses` by resource."""

    name: str
    pool: int
    gpus: int
    nodes: int
    running: float
    uses: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit(Hardware):
    """A unit on sale. `lead`, `life` in quarters; `prices` by the quarter of the order, infinite where it is not on sale."""

    lead: int
    life: int
    most: int | None
    prices: tuple[float, ...]

    def serves(self, order: int, quarter: int) -> bool:
        """Whether what is ordered in one quarter is in service in another."""
        return order + self.lead <= quarter < order + self.lead + self.life


@dataclass(frozen=True, slots=True, kw_only=True)
class Existing(Hardware):
    """Units that are there. In service in the first `quarters` quarters at most, and to the end of them unless `early`."""

    count: int
    quarters: int
    early: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked. T quarters, P pools, V projects, S scenarios, A courses.

    Attributes
    ----------
    limits
        By resource, one number for each quarter; infinite: no limit.
    shares
        Normalised in each pool, shape (V, P).
    pledged
        GPUs that budgets are shares of, shape (T, P); infinite: all that is asked for is owed.
    demand
        GPUs asked for on average, shape (A, S, T, V, P).
    required
        Share of owed time that has to be delivered, shape (V,).
    fraction
        Part of the scenarios in which it has to be.
    """

    title: str
    currency: str
    quarters: tuple[str, ...]
    pools: tuple[str, ...]
    projects: tuple[str, ...]
    scenarios: tuple[str, ...]
    courses: tuple[str, ...]
    units: tuple[Unit, ...]
    existing: tuple[Existing, ...]
    limits: Mapping[str, tuple[float, ...]]
    discount: float
    residual: float
    shares: Floats
    pledged: Floats
    demand: Floats
    required: Floats
    fraction: float
    utilisation: Utilisation
    replay: ReplayDoc
    trace: str | None = None

    @property
    def hardware(self) -> tuple[Hardware, ...]:
        """Every kind of unit, on sale or there."""
        return (*self.units, *self.existing)

    @property
    def owed(self) -> Floats:
        """GPUs owed on average, shape (A, S, T, V, P): the smaller of the share of what was pledged and what is asked for."""
        pledged = self.pledged[:, None, :]
        # An infinite pledge leaves everything owed to whoever has a share, and nothing to the others.
        entitled = np.where(self.shares > 0, pledged * np.where(self.shares > 0, self.shares, 1.0), 0.0)
        return np.minimum(entitled, self.demand)

    @property
    def num_met(self) -> int:
        """How many scenarios have to be met."""
        return max(0, int(np.ceil(self.fraction * len(self.scenarios) - 1e-9)))
