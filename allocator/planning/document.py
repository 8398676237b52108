"""The file of a planning question: its fields, their units and ranges.

Every list of tables may be the name of a CSV file beside it, whose columns are the fields (`uses.power_kw` for a member).
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from allocator.wire.scalars import Count, Name, Part, PositiveCount
from allocator.wire.scalars import Number as Amount

Quarter = Annotated[str, Meta(min_length=1, extra_json_schema={"description": "a quarter, as 2027Q1"})]
Deviation = Annotated[float, Meta(ge=0, le=2)]
"""Of the logarithm: at 2, one year in six brings more than sevenfold the growth that is expected."""
Quarters = Annotated[int, Meta(ge=0, le=400)]
Yearly = Annotated[float, Meta(ge=-0.99, le=20, extra_json_schema={"description": "a part of 1 a year"})]


class _Doc(Struct, forbid_unknown_fields=True, kw_only=True):
    """A table of the file."""


class HardwareDoc(_Doc):
    """A scalable unit: so many GPUs on so many nodes. `running` is money for each quarter in service, `uses` by resource."""

    name: Name
    pool: Name
    gpus: PositiveCount
    nodes: PositiveCount
    running: Amount = 0
    uses: dict[str, Amount] = {}


class UnitDoc(HardwareDoc):
    """A unit that can be bought, at most `most` a quarter. It arrives `lead` quarters after its order and serves `life`."""

    lead: Quarters = 0
    life: Annotated[int, Meta(ge=1, le=400)] = 20
    most: Count | None = None


class ExistingDoc(HardwareDoc):
    """Units that are there at the beginning; `until` is their last quarter, `early` lets them leave before."""

    count: PositiveCount = 1
    until: Quarter | None = None
    early: bool = False


class PriceDoc(_Doc):
    """The price of a unit that is ordered in this quarter or later, up to the next row."""

    unit: Name
    price: Amount
    since: Quarter | None = None


class LimitDoc(_Doc):
    """How much of a resource there is from a quarter on."""

    resource: Name
    limit: Amount
    since: Quarter | None = None


class PledgeDoc(_Doc):
    """From a quarter on, budgets are shares of so many GPUs of a pool: nobody is owed more."""

    pool: Name
    gpus: Amount
    since: Quarter | None = None


class ShareDoc(_Doc):
    """The share of a project in a pool, relative to the others; without a pool in all of them."""

    project: Name
    share: Amount
    pool: Name | None = None


class DemandDoc(_Doc):
    """GPUs that a project asks for on average, from a quarter on; with a scenario in that scenario only."""

    project: Name
    pool: Name
    gpus: Amount
    scenario: Name | None = None
    since: Quarter | None = None


class MoveDoc(_Doc):
    """A course, and what of a pool's demand has moved on to another from a quarter on; a GPU there does the work of `speed`."""

    course: Name
    pool: Name | None = None
    to: Name | None = None
    part: Part = 0
    speed: Annotated[float, Meta(ge=0.01, le=1000)] = 1
    since: Quarter | None = None


class RequireDoc(_Doc):
    """What has to be delivered of what is owed, and in which part of the scenarios."""

    delivered: Part = 0.95
    scenarios: Part = 1
    projects: dict[str, Part] = {}


class GrowthDoc(_Doc):
    """How demand grows, and how uncertain that is: standard deviations of the logarithm of a year's growth.

    `uncertainty` is common to all projects of a scenario, `own` is of each.
    """

    yearly: Yearly = 0
    uncertainty: Deviation = 0
    own: Deviation = 0
    scenarios: Annotated[int, Meta(ge=1, le=10_000)] = 20
    seed: Count = 0
    projects: dict[str, Yearly] = {}
    pools: dict[str, Yearly] = {}


class UtilisationDoc(_Doc):
    """Measured: which part of the demand is delivered at which loads."""

    loads: Annotated[list[Annotated[float, Meta(ge=0.01, le=10)]], Meta(min_length=1)]
    delivered: Annotated[list[Part], Meta(min_length=1)]


class ReplayDoc(_Doc):
    """How the plan is played: on at most so many GPUs of each pool, for so many hours, with so many draws of jobs.

    `failures` are of nodes, per GPU and day; drawn as for synthetic traces.
    """

    quarters: list[Quarter] = []
    policy: Name = "budgets_greedy"
    gpus: Annotated[int, Meta(ge=64, le=1_000_000)] = 256
    hours: Annotated[int, Meta(ge=6, le=240)] = 96
    draws: Annotated[int, Meta(ge=1, le=100)] = 2
    tick: Annotated[int, Meta(ge=15, le=3600)] = 300
    failures: Part = 0


class PlanDoc(_Doc):
    """The whole file."""

    first: Quarter
    quarters: Annotated[int, Meta(ge=1, le=80)]
    units: list[UnitDoc]
    prices: list[PriceDoc]
    title: str = ""
    currency: str = "EUR"
    discount: Annotated[float, Meta(ge=0, le=1)] = 0
    residual: Part = 0
    existing: list[ExistingDoc] = []
    limits: list[LimitDoc] = []
    pledged: list[PledgeDoc] = []
    shares: list[ShareDoc] = []
    demand: list[DemandDoc] = []
    trace: Name | None = None
    growth: GrowthDoc | None = None
    courses: list[MoveDoc] = []
    require: RequireDoc = msgspec.field(default_factory=RequireDoc)
    utilisation: UtilisationDoc | None = None
    replay: ReplayDoc = msgspec.field(default_factory=ReplayDoc)


TABLES = ("units", "prices", "existing", "limits", "pledged", "shares", "demand", "courses")
"""What may stand in CSV files."""
