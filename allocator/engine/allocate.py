"""One epoch, from snapshot to verified, explained decision: the order of the steps and the rungs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush

from allocator.domain import Decision, InfeasibleError, Snapshot, SolverReport
from allocator.engine.clock import Clock
from allocator.engine.homecoming import come_home
from allocator.engine.last_pass import last_pass
from allocator.engine.plan import Plan, States, plan_of
from allocator.engine.portfolio import ENGINES, Answers, first_answer, improve
from allocator.engine.report import decision_of
from allocator.engine.session import Session
from allocator.entitlement import Entitlement, entitle
from allocator.entitlement.costs import Score
from allocator.entitlement.digest import digest_of
from allocator.epoch import EpochProblem, EpochSolution, compile_epoch
from allocator.explain.annotate import annotate, annotate_marked
from allocator.models.process import shared_process
from allocator.models.registry import EXACT_ENGINES
from allocator.verify import verify
from allocator.verify.score import score_of
from allocator.verify.verdict import Verdict
from allocator.wire.memory import collector_paused

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
    session: Session | None = None,
    explain: bool = True,
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
        Share of the cluster's time at which to stop improving; what is proven to lie within it is `optimal`.
    previous
        The decision of the epoch before. It changes nothing, neither the answer nor the time: all that it could tell is in the
        snapshot, and what saves time is in `session`. It is accepted so that policies can be called alike.
    session
        What earlier calls for the same cluster have found (see `Session`). It saves time and never changes the answer, as long
        as nobody changes an object that stood in an earlier snapshot.
    explain
        False leaves out what people read and files are matched by, for simulations: `waiting` holds only the gangs whose
        `entitled_since` changes; `snapshot`, `drains`, `allocations` and `warnings` are empty.

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
    with collector_paused():
        return _allocate(snapshot, time_limit, engine, seed, gap, session, explain)


def _allocate(
    snapshot: Snapshot,
    time_limit: float,
    engine: str,
    seed: int,
    gap: float,
    session: Session | None,
    explain: bool,
) -> Decision:
    """The steps of one call."""
    clock = Clock(time_limit)
    if engine != "greedy":
        shared_process().warm()
    with clock.step("entitle"):
        before = None if session is None else session.before
        snapshot = snapshot.canonical(None if before is None else before.snapshot)
        ent = entitle(snapshot, before)
        if session is not None:
            session.before = ent
        digest = digest_of(ent) if explain else ""
    with clock.step("compile"):
        problem = compile_epoch(ent)
    enough = round(gap * problem.step_gpus * 1000)
    call = _Call(ent, problem, clock, digest, seed, enough, annotate if explain else annotate_marked)
    answers = first_answer(problem, clock)
    improve(answers, engine, clock, enough, seed, lambda: call.prepare(answers), lambda: call.worth(answers))
    decision = call.finish(answers)
    if engine != "greedy":
        shared_process().warm()  # the next call must not wait for a child that takes longer to start than that call may take
    return decision


def _check(engine: str, time_limit: float, gap: float) -> None:
    if engine not in ENGINES:
        raise ValueError(f"unknown engine {engine!r}: choose one of {', '.join(ENGINES)}")
    if not time_limit > 0 or not gap >= 0:
        raise ValueError(f"time_limit must be above 0 and gap at least 0 (not {time_limit} and {gap})")


LEAST_RESERVE = 0.02
"""Seconds that are left for the end in any case."""

RESERVE = 1.25
"""What getting an answer ready takes, times this, is left for the last one."""

Annotate = Callable[[Entitlement, Decision], Decision]


class _Call:
    """One call once it is compiled: gets answers ready, and gives the best one that the verifier accepts."""

    def __init__(
        self, ent: Entitlement, problem: EpochProblem, clock: Clock, digest: str, seed: int, gap: int, annotated: Annotate
    ) -> None:
        self._ent, self._problem, self._clock, self._digest = ent, problem, clock, digest
        self._seed, self._gap, self._annotated = seed, gap, annotated
        self._states = States(ent)
        self._keep_score = self._score(plan_of(problem, KEEP)).total
        self._mended: list[tuple[Plan, tuple[Plan, Score]]] = []
        self._judged: tuple[Decision, Verdict] | None = None
        self._explained: tuple[tuple[Plan, str], Decision] | None = None

    def prepare(self, answers: Answers) -> float:
        """Get the answer so far ready, as a fallback and as a measure: the seconds to leave for the last one."""
        begun = self._clock.elapsed
        rung, plan, score = next(self._by_score(answers))
        decision = self._decide(answers, rung, plan, score, [])
        self._verify(decision)
        self._explain(plan, decision)
        return LEAST_RESERVE + RESERVE * (self._clock.elapsed - begun)

    def worth(self, answers: Answers) -> int:
        """The value of the best answer so far after the last pass, relative to keep."""
        return next(self._by_score(answers))[2].total - self._keep_score

    def finish(self, answers: Answers) -> Decision:
        """The best answer that the verifier accepts; what it refuses is reported, and the next rung answers."""
        notes = list(answers.notes)
        for rung, plan, score in self._by_score(answers):
            decision = self._decide(answers, rung, plan, score, notes)
            verdict = self._verify(decision)
            if verdict.ok:
                explained = self._explain(plan, decision)
                return replace(explained, solver=decision.solver, timing=self._clock.timing())
            notes.append(f"{rung.engine}: refused by the verifier: {'; '.join(map(str, verdict.violations[:3]))}")
            logger.error("%s", notes[-1])
        raise InfeasibleError("no rung passes the verifier: " + " | ".join(notes))

    def _verify(self, decision: Decision) -> Verdict:
        """What the verifier says of a decision; asked once if nothing but the notes on the search has changed."""
        if self._judged is None or _without_notes(self._judged[0]) != _without_notes(decision):
            with self._clock.step("verify"):
                self._judged = decision, verify(self._ent.snapshot, decision, self._ent)
        return self._judged[1]

    def _explain(self, plan: Plan, decision: Decision) -> Decision:
        """The decision with its reasons, perhaps with an earlier report of the search: they depend on what is done and how
        the search ended, so that those of the answer that was got ready hold for the last one too, if it is the same."""
        asked = plan, decision.solver.status
        if self._explained is None or self._explained[0] != asked:
            with self._clock.step("explain"):
                self._explained = asked, self._annotated(self._ent, decision)
        return self._explained[1]

    def _by_score(self, answers: Answers) -> Iterator[tuple[Rung, Plan, Score]]:
        """The rungs by their score after the last pass, keep before its equals: a change must strictly lower the score.

        The last pass may cost score, so a rung queues up again once that is known. Most are never looked at.
        """
        rungs, seen = _rungs(answers), set[int]()
        queue = [(rung.value, order) for order, rung in enumerate(rungs)]
        heapify(queue)
        while queue:
            _, order = heappop(queue)
            plan, score = self._mend(rungs[order])
            if order in seen:
                yield rungs[order], plan, score
                continue
            seen.add(order)
            heappush(queue, (score.total - self._keep_score, order))

    def _mend(self, rung: Rung) -> tuple[Plan, Score]:
        """The plan of a rung after the last pass, and its score; done once for all rungs with this plan."""
        given = plan_of(self._problem, rung.solution)
        found = next((mended for plan, mended in self._mended if plan == given), None)
        if found is None:
            with self._clock.step("last_pass"):
                plan = last_pass(self._ent, given, self._states)
                found = self._at_home(plan, self._score(plan))
            self._mended.append((given, found))
        return found

    def _at_home(self, plan: Plan, score: Score) -> tuple[Plan, Score]:
        """The plan with requeued work where it ran before, if that and what the last pass makes of it cost nothing."""
        home = come_home(self._ent, self._problem, plan)
        if home == plan:
            return plan, score
        home = last_pass(self._ent, home, self._states)
        value = self._score(home)
        return (home, value) if value.total <= score.total else (plan, score)

    def _score(self, plan: Plan) -> Score:
        """What a plan is worth."""
        return score_of(self._states.after(plan))

    def _decide(self, answers: Answers, rung: Rung, plan: Plan, score: Score, notes: list[str]) -> Decision:
        bound, refuted = _bound_of(answers, score.total - self._keep_score)
        for note in refuted:
            logger.error("%s", note)
        absolute = None if bound is None else self._keep_score + bound
        named = rung if rung.engine != "keep" or _is_fallback(plan, notes) else replace(rung, engine="greedy")
        notes = notes + refuted
        report = _report(self._problem, named, answers, score, absolute, self._gap, self._seed, notes)
        return decision_of(self._ent, plan, self._digest, report, {})


def _without_notes(decision: Decision) -> Decision:
    """All of a decision but the notes on the search."""
    return replace(decision, solver=replace(decision.solver, notes=()))


def _rungs(answers: Answers) -> list[Rung]:
    """Keep, and every answer, the earlier ones first."""
    found = [Rung("keep", KEEP, 0)]
    return found + [
        Rung(r.engine, r.solution, r.value) for r in answers.results if r.solution is not None and r.value is not None
    ]


def _is_fallback(plan: Plan, notes: list[str]) -> bool:
    """Whether keep is the word for an answer that grew out of it: nothing is done by choice, or greedy has failed.

    Otherwise greedy found nothing better than what the rules ask of keep, and that is its answer.
    """
    return not (plan.starts or plan.stops or plan.promotions) or any(note.startswith("greedy: ") for note in notes)


def _bound_of(answers: Answers, value: int) -> tuple[int | None, list[str]]:
    """The tightest bound that a decision of this value does not refute, and notes on those that it does."""
    bounds = [(result.engine, result.bound) for result in answers.results if result.bound is not None]
    standing = [bound for _, bound in bounds if bound <= value]
    above = ((engine, bound) for engine, bound in bounds if bound > value)
    refuted = [f"{engine}: its bound {bound} lies above the value {value} of this decision" for engine, bound in above]
    return max(standing, default=None), refuted


def _report(
    problem: EpochProblem,
    rung: Rung,
    answers: Answers,
    score: Score,
    bound: int | None,
    gap: int,
    seed: int,
    notes: list[str],
) -> SolverReport:
    """What the answer is worth and what is proven of it: optimal is what lies within the gap that was asked for."""
    objective = score.total
    proven = bound is not None and objective - bound <= gap
    exact = [result.engine for result in answers.results if result.bound is not None]
    engine = rung.engine if rung.engine != "keep" else (exact[-1] if proven else "greedy")
    name = "exact" if proven or engine in EXACT_ENGINES else rung.engine
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
