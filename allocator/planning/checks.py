"""Whether a planning question contradicts itself: every issue with its place, its value and what would be valid."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from allocator.domain import Issue
from allocator.planning.document import TABLES, HardwareDoc, PlanDoc, UtilisationDoc
from allocator.planning.quarters import name_quarter, parse_quarter
from allocator.planning.steps import by_quarter
from allocator.planning.utilisation import MEASURED
from allocator.replay.registry import policy_names
from allocator.wire.shapes import nearest, show


def document_issues(doc: PlanDoc) -> list[Issue]:
    """Every contradiction of the file in itself."""
    return [
        *_quarter_issues(doc),
        *_name_issues(doc),
        *_unit_issues(doc),
        *_demand_issues(doc),
        *(project_issues(doc, projects_of(doc)) if doc.trace is None else ()),
        *_limit_issues(doc),
        *_course_issues(doc),
        *_twice_issues(doc),
        *_replay_issues(doc),
        *(_curve_issues(doc.utilisation) if doc.utilisation is not None else ()),
        *_promise_issues(doc),
    ]


def hardware_of(doc: PlanDoc) -> list[HardwareDoc]:
    """Every kind of unit of the file."""
    return [*doc.existing, *doc.units]


def pools_of(doc: PlanDoc) -> list[str]:
    """All pools that units of the file belong to, in its order."""
    return list(dict.fromkeys(unit.pool for unit in hardware_of(doc)))


def projects_of(doc: PlanDoc) -> list[str]:
    """All projects that the file names; a trace may know more."""
    return sorted({row.project for row in doc.demand} | {row.project for row in doc.shares})


def _quarter_issues(doc: PlanDoc) -> Iterator[Issue]:
    given = [("$.first", doc.first)]
    for table in TABLES:
        for at, row in enumerate(getattr(doc, table)):
            named = ((field, getattr(row, field, None)) for field in ("since", "until"))
            given += [(f"$.{table}[{at}].{field}", text) for field, text in named if text is not None]
    for path, text in given:
        if parse_quarter(text) is None:
            yield Issue(path=path, problem=f"{show(text)} is no quarter", remedy="write it as 2027Q1")


def _name_issues(doc: PlanDoc) -> Iterator[Issue]:
    """Names that nothing is called by, and names that two are called by."""
    pools, units = pools_of(doc), [unit.name for unit in doc.units]
    resources = sorted({name for unit in hardware_of(doc) for name in unit.uses})
    yield from _unknown("limits", "resource", doc.limits, resources)
    yield from _unknown("prices", "unit", doc.prices, units)
    for table in ("pledged", "demand", "shares", "courses"):
        yield from _unknown(table, "pool", getattr(doc, table), pools)
    yield from _unknown("courses", "to", doc.courses, pools)
    names = [unit.name for unit in hardware_of(doc)]
    for at, name in enumerate(names):
        if name in names[:at]:
            table, row = ("existing", at) if at < len(doc.existing) else ("units", at - len(doc.existing))
            remedy = "give every one a name of its own"
            yield Issue(path=f"$.{table}[{row}].name", problem=f"{show(name)} is there twice", remedy=remedy)


def _unknown(table: str, field: str, rows: Iterable[object], valid: Sequence[str]) -> Iterator[Issue]:
    for at, row in enumerate(rows):
        name = getattr(row, field)
        if name is not None and name not in valid:
            yield Issue(path=f"$.{table}[{at}].{field}", problem=f"unknown {field} {show(name)}", remedy=nearest(name, valid))


def _unit_issues(doc: PlanDoc) -> Iterator[Issue]:
    """Units that have no price, no whole nodes, or other nodes than their pool."""
    priced = {row.unit for row in doc.prices}
    sizes: dict[str, float] = {}
    tables: dict[str, Sequence[HardwareDoc]] = {"existing": doc.existing, "units": doc.units}
    for table, rows in tables.items():
        for at, unit in enumerate(rows):
            path, size = f"$.{table}[{at}]", unit.gpus / unit.nodes
            if unit.gpus % unit.nodes:
                problem, remedy = f"{unit.gpus} GPUs on {unit.nodes} nodes", "give nodes that all have as many GPUs"
                yield Issue(path=f"{path}.nodes", problem=problem, remedy=remedy)
            elif sizes.setdefault(unit.pool, size) != size:
                problem = f"{size:g} GPUs a node in pool {show(unit.pool)}, whose others have {sizes[unit.pool]:g}"
                yield Issue(path=f"{path}.nodes", problem=problem, remedy="give each GPU type and kind of node its own pool")
    for at, sold in enumerate(doc.units):
        if sold.name not in priced:
            yield Issue(path=f"$.units[{at}]", problem=f"{show(sold.name)} has no price", remedy="add a row to prices")


def _demand_issues(doc: PlanDoc) -> Iterator[Issue]:
    explicit = any(row.scenario is not None for row in doc.demand)
    if bool(doc.demand) == (doc.trace is not None):
        problem = "demand is given twice" if doc.demand else "no demand is given"
        yield Issue(path="$.demand", problem=problem, remedy="give either rows of demand or a trace")
    if explicit and doc.growth is not None:
        remedy = "leave growth out, or the scenarios of the rows"
        yield Issue(path="$.growth", problem="the scenarios are given and drawn", remedy=remedy)
    if doc.demand and not doc.shares:
        yield Issue(path="$.shares", problem="nobody has a share", remedy="give the share of every project")
    sharing = {
        (row.project, pool) for row in doc.shares for pool in ([row.pool] if row.pool else pools_of(doc)) if row.share > 0
    }
    for at, row in enumerate(doc.demand):
        if doc.shares and row.gpus > 0 and (row.project, row.pool) not in sharing:
            problem = f"{show(row.project)} has no share of {show(row.pool)}, so nothing of this is owed"
            yield Issue(path=f"$.demand[{at}].project", problem=problem, remedy="give it a share, or leave the row out")


def project_issues(doc: PlanDoc, projects: Sequence[str]) -> Iterator[Issue]:
    """Projects of requirements and growth that nobody has heard of."""
    grown = doc.growth.projects if doc.growth else {}
    for place, names in (("$.require.projects", doc.require.projects), ("$.growth.projects", grown)):
        for name in names:
            if name not in projects:
                yield Issue(path=place, problem=f"unknown project {show(name)}", remedy=nearest(name, projects))


def _limit_issues(doc: PlanDoc) -> Iterator[Issue]:
    """What is there and may not leave has to keep within the limits: nothing that is decided could help."""
    first = parse_quarter(doc.first)
    if first is None or any(parse_quarter(row.since) is None for row in doc.limits if row.since is not None):
        return
    for resource in dict.fromkeys(row.resource for row in doc.limits):
        limits = by_quarter(
            [(row, row.limit) for row in doc.limits if row.resource == resource], first, doc.quarters, float("inf")
        )
        for quarter, limit in enumerate(limits):
            fixed = sum(
                row.count * row.uses.get(resource, 0)
                for row in doc.existing
                if not row.early and (row.until is None or (parse_quarter(row.until) or 0) >= first + quarter)
            )
            if fixed > limit:
                problem = (
                    f"{resource} is {limit:g} in {name_quarter(first + quarter)}; what may not leave by then takes {fixed:g}"
                )
                yield Issue(path="$.limits", problem=problem, remedy="raise the limit, or let existing units leave early")
                break


def _course_issues(doc: PlanDoc) -> Iterator[Issue]:
    """Moves from nowhere, to nowhere or to where they came from, and pools that lose more than there is."""
    lost: dict[tuple[str, str], dict[str, float]] = {}
    for at, row in enumerate(doc.courses):
        if (row.pool is None) != (row.to is None) or (row.pool is not None and row.pool == row.to):
            problem, remedy = (
                f"moves from {show(row.pool)} to {show(row.to)}",
                "name two pools, or none for a course without moves",
            )
            yield Issue(path=f"$.courses[{at}]", problem=problem, remedy=remedy)
        elif row.pool is not None and row.to is not None:
            parts = lost.setdefault((row.course, row.pool), {})
            parts[row.to] = max(parts.get(row.to, 0.0), row.part)
            if sum(parts.values()) > 1:
                problem = f"{sum(parts.values()):g} of {show(row.pool)} moves on"
                yield Issue(path=f"$.courses[{at}].part", problem=problem, remedy="let all parts add up to 1 at most")


def _twice_issues(doc: PlanDoc) -> Iterator[Issue]:
    """Two rows that say different things of the same from the same quarter on."""
    for table, names in _IDENTITY.items():
        seen: set[tuple[str | None, ...]] = set()
        for at, row in enumerate(getattr(doc, table)):
            identity = tuple(getattr(row, name, None) for name in (*names, "since"))
            if identity in seen:
                listed = ", ".join(show(name) for name in identity if name is not None)
                yield Issue(path=f"$.{table}[{at}]", problem=f"{listed} is there twice", remedy="leave one of the rows out")
            seen.add(identity)


_IDENTITY = {
    "prices": ("unit",),
    "limits": ("resource",),
    "pledged": ("pool",),
    "shares": ("project", "pool"),
    "demand": ("scenario", "project", "pool"),
    "courses": ("course", "pool", "to"),
}
"""What a row is about, besides the quarter from which on it holds."""


def _replay_issues(doc: PlanDoc) -> Iterator[Issue]:
    if doc.replay.policy not in policy_names():
        remedy = nearest(doc.replay.policy, policy_names())
        yield Issue(path="$.replay.policy", problem=f"unknown policy {show(doc.replay.policy)}", remedy=remedy)
    first = parse_quarter(doc.first) or 0
    valid = [name_quarter(first + quarter) for quarter in range(doc.quarters)]
    for at, name in enumerate(doc.replay.quarters):
        if name not in valid:
            problem = f"{show(name)} is no quarter of the plan"
            yield Issue(path=f"$.replay.quarters[{at}]", problem=problem, remedy=f"give one from {valid[0]} to {valid[-1]}")


def _curve_issues(doc: UtilisationDoc) -> Iterator[Issue]:
    """A curve on which a higher load is served better has no least fleet."""
    pairs = list(zip(doc.loads, doc.delivered, strict=False))
    if len(doc.loads) != len(doc.delivered):
        problem = f"{len(doc.loads)} loads and {len(doc.delivered)} shares"
        yield Issue(path="$.utilisation.delivered", problem=problem, remedy="give one share for each load")
    for at, ((load, share), (next_load, next_share)) in enumerate(pairwise(pairs), start=1):
        if next_load <= load or next_share > share:
            remedy = "let loads rise and shares fall"
            yield Issue(path=f"$.utilisation.loads[{at}]", problem=f"{next_load:g} after {load:g}", remedy=remedy)


def _promise_issues(doc: PlanDoc) -> Iterator[Issue]:
    """Nobody can be promised more than a fleet delivers that is hardly loaded."""
    most = (doc.utilisation or MEASURED).delivered[0]
    for path, share in (("$.require.delivered", doc.require.delivered), *_required(doc)):
        if share > most:
            problem = f"{share:g} of what is owed, but at the lowest load that was measured only {most:g} is delivered"
            yield Issue(path=path, problem=problem, remedy=f"require {most:g} at most, or measure at a lower load")


def _required(doc: PlanDoc) -> Iterator[tuple[str, float]]:
    for name, share in doc.require.projects.items():
        yield f"$.require.projects.{name}", share
