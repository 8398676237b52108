"""One epoch, from snapshot to verified, explained decision: the order of the steps and the rungs."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush

from allocator.domain import Decision, InfeasibleError, Snapshot, SolverReport
from allocator.engine.clock import Clock
from allocator.engine.last_pass import last_pass
from allocator.engine.plan import Plan, after_plan, plan_of
from allocator.engine.portfolio import ENGINES, Answers, run_engines
from allocator.engine.report import decision_of
from allocator.entitlement import Entitlement, entitle
from allocator.entitlement.costs import Score
from allocator.epoch import EpochProblem, EpochSolution, compile_epoch
from allocator.explain.annotate import annotate
from allocator.models.process import shared_process
from allocator.verify import verify
from allocator.verify.score import score_of
from allocator.wire import snapshot_digest

logger = logging.getLogger(__name__)

KEEP = EpochSolution()


@dataclass(frozen=True, slots=True)
class Rung:
    """One answer to fall back on: which engine gave it, and its value relative to keep."""

    engine: str
    solution: EpochSolution
    value: int


def allocate(
    snapshot: Snapshot,
    *,
    time_limit: float = 10.0,
    engine: str = "portfolio",
    seed: int = 0,
    gap: float = 0.0,
    previous: Decision | None = None,
) -> Decision:
    """Decide one epoch.

    Parameters
    ----------
    snapshot
        The cluster, budgets and work at one instant. The order of its lists does not matter.
    time_limit
        Seconds for the whole call.
    engine
        "portfolio", or one engine by name.
    seed
        Seed of the solvers; the same seed gives the same decision.
    gap
        Share of the cluster's time at which to stop improving.
    previous
        The decision of the epoch before. It may save time and never changes the answer.

    Returns
    -------
    Decision
        Verified and explained.

    Raises
    ------
    InfeasibleError
        If not even keeping everything as it is satisfies the rules: the snapshot is inconsistent, or there is a bug.
    ValueError
        If the engine is unknown or a limit is out of range.
    """
    _check(engine, time_limit, gap)
    clock = Clock(time_limit)
    if engine != "greedy":
        shared_process().warm()
    with clock.step("entitle"):
        snapshot = snapshot.canonical()
        digest = snapshot_digest(snapshot)
        ent = entitle(snapshot)
    with clock.step("compile"):
        problem = compile_epoch(ent)
    reserve = _reserve(clock, time_limit)
    answers = run_engines(problem, engine, clock, reserve, seed, round(gap * problem.step_gpus * 1000))
    return _best_verified(ent, problem, answers, clock, digest, seed)


def _check(engine: str, time_limit: float, gap: float) -> None:
    if engine not in ENGINES:
        raise ValueError(f"unknown engine {engine!r}: choose one of {', '.join(ENGINES)}")
    if not time_limit > 0 or not gap >= 0:
        raise ValueError(f"time_limit must be above 0 and gap at least 0 (not {time_limit} and {gap})")


def _reserve(clock: Clock, time_limit: float) -> float:
    """Seconds kept for what follows the engines, judged by what preceded them, but never most of the budget."""
    return min(0.1 + 2 * clock.elapsed, time_limit / 2)


def _best_verified(ent: Entitlement, problem: EpochProblem, answers: Answers, clock: Clock, digest: str, seed: int) -> Decision:
    """The best answer that the verifier accepts; what it refuses is reported, and the next rung answers."""
    notes = list(answers.notes)
    constant = score_of(after_plan(ent, plan_of(problem, KEEP))).total
    for rung, plan, score in _by_score(ent, problem, _rungs(answers), constant, clock):
        bound, refuted = _bound_of(answers, score.total - constant)
        with clock.step("verify"):
            solver = _report(problem, rung, answers, score, None if bound is None else constant + bound, seed, notes + refuted)
            decision = decision_of(ent, plan, digest, solver, {})
            verdict = verify(ent.snapshot, decision, ent)
        if verdict.ok:
            for note in refuted:
                logger.error("%s", note)
            with clock.step("explain"):
                decision = annotate(ent, decision)
            return replace(decision, timing=clock.timing())
        notes.append(f"{rung.engine}: refused by the verifier: {'; '.join(map(str, verdict.violations[:3]))}")
        logger.error("%s", notes[-1])
    raise InfeasibleError("no rung passes the verifier: " + " | ".join(notes))


def _rungs(answers: Answers) -> list[Rung]:
    """Keep, and every answer, the earlier ones first."""
    found = [Rung("keep", KEEP, 0)]
    return found + [
        Rung(r.engine, r.solution, r.value) for r in answers.results if r.solution is not None and r.value is not None
    ]


def _by_score(
    ent: Entitlement, problem: EpochProblem, rungs: Sequence[Rung], constant: int, clock: Clock
) -> Iterator[tuple[Rung, Plan, Score]]:
    """The rungs by their score after the last pass, keep before its equals: a change must strictly lower the score.

    The last pass may cost score, so a rung queues up again once that is known. Most are never looked at.
    """
    mended: dict[int, tuple[Plan, Score]] = {}
    queue = [(rung.value, order) for order, rung in enumerate(rungs)]
    heapify(queue)
    while queue:
        _, order = heappop(queue)
        if order in mended:
            yield rungs[order], *mended[order]
            continue
        with clock.step("last_pass"):
            plan = last_pass(ent, plan_of(problem, rungs[order].solution))
            mended[order] = plan, score_of(after_plan(ent, plan))
        heappush(queue, (mended[order][1].total - constant, order))


def _bound_of(answers: Answers, value: int) -> tuple[int | None, list[str]]:
    """The tightest bound that a decision of this value does not refute, and notes on those that it does."""
    bounds = {result.engine: result.bound for result in answers.results if result.bound is not None}
    standing = [bound for bound in bounds.values() if bound <= value]
    refuted = [
        f"{engine}: its bound {bound} lies above the value {value} of this decision"
        for engine, bound in bounds.items()
        if bound > value
    ]
    return max(standing, default=None), refuted


def _report(
    problem: EpochProblem, rung: Rung, answers: Answers, score: Score, bound: int | None, seed: int, notes: list[str]
) -> SolverReport:
    """What the answer is worth and what is proven of it."""
    objective = score.total
    proven = bound is not None and objective <= bound
    exact = [result.engine for result in answers.results if result.bound is not None]
    engine = rung.engine if rung.engine != "keep" else (exact[-1] if proven else "greedy")
    name = "exact" if proven or engine in exact else rung.engine
    return SolverReport(
        rung=name,
        engine=engine,
        status="optimal" if proven else "feasible",
        objective=objective,
        bound=bound,
        gap=None if bound is None else (objective - bound) / (1000 * problem.step_gpus),
        terms=score.as_dict(),
        seed=seed,
        notes=tuple(notes),
    )
