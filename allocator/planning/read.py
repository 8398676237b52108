"""From the file to the question: read, checked, and spread over quarters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf
from pathlib import Path

import numpy as np

from allocator.domain import Issue
from allocator.domain.trace import Trace
from allocator.planning.checks import document_issues, pools_of, project_issues
from allocator.planning.document import DemandDoc, ExistingDoc, PlanDoc, UnitDoc
from allocator.planning.quarters import name_quarter, parse_quarter
from allocator.planning.question import Existing, Floats, Question, Unit
from allocator.planning.scenarios import EXPECTED, given_demand, grow, measure_demand, measure_shares, move
from allocator.planning.steps import by_quarter
from allocator.planning.tables import Places, read_document
from allocator.planning.utilisation import MEASURED, Utilisation
from allocator.wire import load_named_trace
from allocator.wire.shapes import nearest, show

MOST_GPUS = 1_000_000_000
"""No project asks for more of a pool."""

AS_IT_IS = "as it is"
"""The course on which demand stays in its pools."""


def read_question(path: Path) -> Question:
    """Read a planning question and everything that its file names.

    Raises
    ------
    SnapshotError
        With every issue, if the file is refused.
    """
    doc, places = read_document(path)
    issues = document_issues(doc)
    if issues:
        raise places.refuse(issues)
    trace = load_named_trace(path.parent / doc.trace) if doc.trace is not None else None
    return _build(doc, places, trace)


def read_trace(question: Question, path: Path) -> Trace | None:
    """The trace that a question took its demand from."""
    return None if question.trace is None else load_named_trace(path.parent / question.trace)


def _build(doc: PlanDoc, places: Places, trace: Trace | None) -> Question:
    first, quarters, pools = parse_quarter(doc.first) or 0, doc.quarters, pools_of(doc)
    rows = list(doc.demand) if trace is None else _trace_rows(trace, pools, places)
    shares_of = measure_shares(trace) if trace is not None and not doc.shares else _given_shares(doc, pools)
    projects = sorted({row.project for row in rows} | {project for project, _ in shares_of})
    issues = list(project_issues(doc, projects))
    if issues:
        raise places.refuse(issues)
    names, demand = _scenarios(doc, rows, projects, pools, first)
    issues += _overgrown(demand, names, projects, pools, first)
    if issues:
        raise places.refuse(issues)
    courses = list(dict.fromkeys(row.course for row in doc.courses)) or [AS_IT_IS]
    moves = {course: [row for row in doc.courses if row.course == course] for course in courses}
    return Question(
        title=doc.title or "capacity plan",
        currency=doc.currency,
        quarters=tuple(name_quarter(first + quarter) for quarter in range(quarters)),
        pools=tuple(pools),
        projects=tuple(projects),
        scenarios=tuple(names),
        courses=tuple(courses),
        units=tuple(_unit(unit, doc, pools, first) for unit in doc.units),
        existing=tuple(_existing(row, doc, pools, first) for row in doc.existing),
        limits=_limits(doc, first),
        discount=doc.discount,
        residual=doc.residual,
        shares=_normalised(shares_of, projects, pools),
        pledged=_pledged(doc, pools, first),
        demand=np.stack([move(demand, moves[course], pools, first, quarters) for course in courses]),
        required=np.array([doc.require.projects.get(project, doc.require.delivered) for project in projects]),
        fraction=doc.require.scenarios,
        utilisation=_utilisation(doc),
        replay=doc.replay,
        trace=doc.trace,
    )


def _scenarios(
    doc: PlanDoc, rows: Sequence[DemandDoc], projects: Sequence[str], pools: Sequence[str], first: int
) -> tuple[list[str], Floats]:
    """Names of the scenarios, and demand in each before it moves, shape (S, T, V, P)."""
    names = list(dict.fromkeys(row.scenario for row in rows if row.scenario is not None)) or [EXPECTED]
    demand = given_demand(rows, names, projects, pools, first, doc.quarters)
    if doc.growth is None:
        return names, demand
    return [f"draw {number}" for number in range(1, doc.growth.scenarios + 1)], grow(demand, doc.growth, projects, pools)


def _overgrown(
    demand: Floats, names: Sequence[str], projects: Sequence[str], pools: Sequence[str], first: int
) -> Iterator[Issue]:
    """Growth that nobody means: it is told where it is worst."""
    if not demand.size:
        return
    s, t, v, p = map(int, np.unravel_index(int(np.argmax(demand)), demand.shape))
    most = float(demand[s, t, v, p])
    if not most <= MOST_GPUS:
        where = f"in {name_quarter(first + t)}, scenario {show(names[s])}"
        yield Issue(
            path="$.growth" if len(names) > 1 else "$.demand",
            problem=f"{show(projects[v])} asks for {most:.3g} GPUs of {show(pools[p])} {where}",
            remedy=f"give less demand, less growth or fewer quarters: at most {MOST_GPUS:,d} GPUs",
        )


def _trace_rows(trace: Trace, pools: Sequence[str], places: Places) -> list[DemandDoc]:
    """What the trace asked for, as rows."""
    found = measure_demand(trace)
    issues = [
        Issue(
            path="$.trace",
            problem=f"its work names pool {show(pool)}, of which there are no units",
            remedy=nearest(pool, pools),
        )
        for pool in sorted({pool for _, pool in found} - set(pools))
    ]
    if issues:
        raise places.refuse(issues)
    return [DemandDoc(project=project, pool=pool, gpus=gpus) for (project, pool), gpus in sorted(found.items())]


def _given_shares(doc: PlanDoc, pools: Sequence[str]) -> dict[tuple[str, str], float]:
    """Shares as they stand in the file; those of one pool go before those of all."""
    found = {(row.project, pool): row.share for row in doc.shares if row.pool is None for pool in pools}
    return found | {(row.project, row.pool): row.share for row in doc.shares if row.pool is not None}


def _normalised(shares: Mapping[tuple[str, str], float], projects: Sequence[str], pools: Sequence[str]) -> Floats:
    """Shape (V, P); adds up to 1 in each pool where anybody has a share."""
    table = np.array([[shares.get((project, pool), 0.0) for pool in pools] for project in projects]).reshape(-1, len(pools))
    total = table.sum(0)
    return np.asarray(np.divide(table, total, out=np.zeros(table.shape), where=total > 0))


def _unit(unit: UnitDoc, doc: PlanDoc, pools: Sequence[str], first: int) -> Unit:
    """A unit with the price of each quarter; infinite before it is on sale."""
    prices = by_quarter([(row, row.price) for row in doc.prices if row.unit == unit.name], first, doc.quarters, inf)
    return Unit(
        name=unit.name, pool=pools.index(unit.pool), gpus=unit.gpus, nodes=unit.nodes, lead=unit.lead, life=unit.life,
        running=unit.running, most=unit.most, uses=unit.uses, prices=tuple(prices),
    )  # fmt: skip


def _existing(row: ExistingDoc, doc: PlanDoc, pools: Sequence[str], first: int) -> Existing:
    until = None if row.until is None else parse_quarter(row.until)
    quarters = doc.quarters if until is None else min(doc.quarters, max(0, until - first + 1))
    return Existing(
        name=row.name, pool=pools.index(row.pool), gpus=row.gpus, nodes=row.nodes, count=row.count, quarters=quarters,
        early=row.early, running=row.running, uses=row.uses,
    )  # fmt: skip


def _limits(doc: PlanDoc, first: int) -> dict[str, tuple[float, ...]]:
    names = dict.fromkeys(row.resource for row in doc.limits)
    return {
        name: tuple(by_quarter([(row, row.limit) for row in doc.limits if row.resource == name], first, doc.quarters, inf))
        for name in names
    }


def _pledged(doc: PlanDoc, pools: Sequence[str], first: int) -> Floats:
    """GPUs that budgets are shares of, shape (T, P)."""
    series = [
        by_quarter([(row, row.gpus) for row in doc.pledged if row.pool == pool], first, doc.quarters, inf) for pool in pools
    ]
    return np.array(series, dtype=np.float64).T


def _utilisation(doc: PlanDoc) -> Utilisation:
    given = doc.utilisation
    if given is None:
        return MEASURED
    return Utilisation(loads=tuple(given.loads), delivered=tuple(given.delivered))
