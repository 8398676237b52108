"""Broken engines: the decision is there all the same, from the next rung, and says what went wrong."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache

import pytest

from allocator.domain import Decision, InfeasibleError, Snapshot
from allocator.engine import allocate, portfolio
from allocator.engine.clock import Clock
from allocator.entitlement import entitle
from allocator.epoch import EpochProblem, EpochSolution, compile_epoch
from allocator.models import process
from allocator.models.greedy import solver as greedy
from allocator.models.process import shared_process
from allocator.models.protocol import EngineResult, Limits, Status
from allocator.models.registry import BOUND, EXACT_ENGINES
from allocator.verify import verify
from allocator.verify.verdict import Verdict, Violation
from tests.builders import HOUR, NOW, budget, job, nodes, running, snapshot, weights
from tests.engines.broken import FOREVER
from tests.engines.seeds import LIMIT

engine_module = sys.modules["allocator.engine.allocate"]
"""The module, which the function of the same name hides."""

SHORT = 1.0
"""Seconds for a call in which an engine hangs."""

TALKING = 5.0
"""Seconds for a call in which an engine hangs once it has told something: a child that is there has to solve within them."""

Break = Callable[..., None]


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Iterator[Break]:
    """Breaks exact engines (all, if none is named) in the child processes that are started from now on."""

    def install(fault: str, *names: str) -> None:
        setup = f"from tests.engines import broken; broken.install({fault!r}, *{names or EXACT_ENGINES!r})"
        boot = f"import sys; sys.path[:] = {{path!r}}; {setup}; from allocator.models.worker import main; main()"
        monkeypatch.setattr(process, "_BOOT", boot)
        shared_process().kill()

    yield install
    shared_process().kill()


def contest() -> Snapshot:
    """Two nodes, one of them held by `old`, far above what it is owed. `new` and `next` start, `old` stops for one of them.

    Greedy cannot prove that: one of them has to break up the free node, which its relaxation does not know.
    """
    works = [
        running("old", "a", {"n1": 1}),
        job("new", "b", gpus=5, submit_time=NOW - 2 * HOUR),
        job("next", "b", gpus=5),
        job("large", "a", gpus=32),
    ]
    return snapshot(nodes(2), [budget("a", 1), budget("b", 100)], works)


def at_rest() -> Snapshot:
    """What waits may stop nobody, which greedy cannot prove: a half of it would fit."""
    works = [running("old", "a", {"n2": 1, "n3": 1}, 16, min_runtime=0, charged=False), job("more", "a", 16, min_runtime=0)]
    return snapshot(nodes(3), [budget("a")], works)


@cache
def healthy() -> Decision:
    """What all engines in good health make of the contest."""
    decision = allocate(contest(), time_limit=LIMIT)
    assert (decision.solver.rung, decision.solver.status, decision.solver.notes) == ("exact", "optimal", ())
    return timeless(decision)


def limit_of(fault: str) -> float:
    """Seconds for a call in which an engine may hang once it has told something. The child is there before they begin."""
    if "hangs" not in fault:
        return LIMIT
    with shared_process().solving(BOUND, compile_epoch(entitle(contest())), Limits(LIMIT), None) as answer:
        assert answer(time.monotonic() + LIMIT).bound is not None
    return TALKING


def timeless(decision: Decision) -> Decision:
    return replace(decision, timing={})


def rows(decision: Decision) -> tuple[object, ...]:
    """What a decision does."""
    return decision.starts, decision.preemptions, decision.promotions, decision.contract_broken


CAUSES = {
    "hangs": "killed at the deadline without an answer",
    "spins": "killed at the deadline without an answer",
    "exits": "the solver process ended with status 7",
    "aborts": f"the solver process ended with status {-signal.SIGABRT}",
    "raises": "OverflowError: beyond 2^52",
    "finds_no_way": "infeasible",
    "rejects_the_model": "invalid",
    "names_no_node": "its solution cannot be read",
    "names_no_offer": "its solution cannot be read",
    "promises_too_much": "its solution is worth 0, not -1000000000000",
}
"""What the decision says of each fault."""


FAULTS = [("portfolio", fault) for fault in CAUSES] + [(name, "exits") for name in EXACT_ENGINES]


@pytest.mark.parametrize(("engine", "fault"), FAULTS)
def test_greedy_answers_for_a_broken_engine(engine: str, fault: str, broken: Break) -> None:
    expected = allocate(contest(), engine="greedy")
    assert {row.workload for row in expected.starts} == {"new", "next"}
    broken(fault)
    decision = allocate(contest(), engine=engine, time_limit=SHORT if "killed" in CAUSES[fault] else LIMIT)
    assert rows(decision) == rows(expected)
    assert (decision.solver.rung, decision.solver.engine, decision.solver.status) == ("greedy", "greedy", "feasible")
    assert (decision.solver.bound, decision.solver.gap) == (expected.solver.bound, expected.solver.gap)
    assert f"{named(engine)[0]}: {CAUSES[fault]}" in " | ".join(decision.solver.notes)
    assert all(any(note.startswith(f"{name}: ") for note in decision.solver.notes) for name in named(engine))
    assert decision.timing["total_seconds"] < FOREVER
    assert verify(contest(), decision).ok


LAST_WORDS = {
    "hangs_after_the_best": "killed at the deadline; what it had told by then counts",
    "exits_after_the_best": "the solver process ended with status 7; what it had told by then counts",
    "raises_after_the_best": "OverflowError: beyond 2^52",
    "dies_in_the_middle": "the solver process ended with status 7; what it had told by then counts",
    "turns_to_nonsense": "its answer cannot be read (TypeError: it is a str); what it had told by then counts",
}
"""What the decision says of engines that go wrong once they have told the best answer and its proof."""


@pytest.mark.parametrize("engine", EXACT_ENGINES)
@pytest.mark.parametrize("fault", LAST_WORDS)
def test_what_an_engine_has_told_outlives_it(engine: str, fault: str, broken: Break) -> None:
    expected = healthy()
    broken(fault)
    decision = allocate(contest(), engine=engine, time_limit=limit_of(fault))
    assert rows(decision) == rows(expected)
    assert (decision.solver.rung, decision.solver.status) == ("exact", "optimal")
    assert (decision.solver.objective, decision.solver.bound) == (expected.solver.objective, expected.solver.bound)
    assert decision.solver.notes == (f"{engine}: {LAST_WORDS[fault]}",)
    assert verify(contest(), decision).ok


@pytest.mark.parametrize("engine", EXACT_ENGINES)
def test_a_bound_outlives_its_engine(engine: str, broken: Break) -> None:
    best = healthy().solver
    assert best.bound is not None
    broken(fault := "hangs_after_a_bound")
    decision = allocate(contest(), engine=engine, time_limit=limit_of(fault))
    assert decision.solver.bound == best.bound - 1
    assert rows(decision) == rows(allocate(contest(), engine="greedy"))
    assert (decision.solver.rung, decision.solver.status) == ("greedy", "feasible")


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("boasts_and_hangs", "its solution is worth 0, not -1000000000000"),
        ("names_no_bound", "its bound is a float"),
    ],
)
def test_what_is_told_on_the_way_is_checked(fault: str, said: str, broken: Break) -> None:
    expected = allocate(contest(), engine="greedy")
    broken(fault)
    decision = allocate(contest(), engine=EXACT_ENGINES[0], time_limit=limit_of(fault))
    assert rows(decision) == rows(expected)
    assert (decision.solver.bound, decision.solver.status) == (expected.solver.bound, "feasible")
    assert said in decision.solver.notes[0]


def named(engine: str) -> tuple[str, ...]:
    """The exact engines that an engine asks."""
    return EXACT_ENGINES if engine == "portfolio" else (engine,)


@pytest.mark.parametrize("fault", ["gives_up", "proves_nothing"])
def test_an_engine_that_finds_nothing_better_is_no_fault(fault: str, broken: Break) -> None:
    broken(fault)
    decision = allocate(contest(), time_limit=LIMIT)
    assert (decision.solver.rung, decision.solver.status, decision.solver.notes) == ("greedy", "feasible", ())


@pytest.mark.parametrize("fault", ["hangs", "exits", "raises"])
def test_where_nothing_can_be_done_keep_answers(fault: str, broken: Break) -> None:
    broken(fault)
    decision = allocate(at_rest(), time_limit=SHORT if fault == "hangs" else LIMIT)
    assert (decision.solver.rung, decision.solver.status) == ("keep", "feasible")
    assert not any(rows(decision))
    assert CAUSES[fault] in decision.solver.notes[0]


@pytest.mark.parametrize(("engine", "rung"), [("greedy", "greedy"), ("portfolio", "exact")])
def test_what_the_rules_ask_of_keep_is_no_longer_keep(engine: str, rung: str) -> None:
    """Nothing is worth a change, but entitled work may not wait for unallocated work: no rung has failed."""
    free = running("free", "a", {"n1": 1}, min_runtime=0, charged=False)
    snap = snapshot(nodes(1), [budget("a")], [free, job("paid", "a", 7)])
    decision = allocate(snap, engine=engine, time_limit=LIMIT)
    assert [row.workload for row in decision.starts] == ["paid"]
    assert (decision.solver.rung, decision.solver.engine, decision.solver.notes) == (rung, "greedy", ())


@pytest.mark.parametrize("fault", ["hangs", "aborts"])
def test_the_next_call_has_a_new_child(fault: str, broken: Break, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = healthy()
    broken(fault)
    shared_process().warm()
    first = shared_process()._child
    assert allocate(contest(), time_limit=SHORT if fault == "hangs" else LIMIT).solver.rung == "greedy"
    second = shared_process()._child
    assert first is not None
    assert second is not None
    assert first is not second, "it was started at the end of the call, so that the next one need not wait for it"
    assert first.poll() is not None, "it has ended"
    monkeypatch.undo()
    shared_process().kill()  # the second was started before the engine was healthy again
    assert timeless(allocate(contest(), time_limit=LIMIT)) == expected


@pytest.mark.parametrize("fault", ["raises", "names_no_node", "crowds_a_node"])
def test_a_child_that_still_answers_is_kept(fault: str, broken: Break) -> None:
    broken(fault)
    allocate(contest(), time_limit=LIMIT)
    first = shared_process()._child
    allocate(contest(), time_limit=LIMIT)
    assert first is not None
    assert shared_process()._child is first


@pytest.mark.skipif(len(EXACT_ENGINES) < 2, reason="there is one exact engine only")
@pytest.mark.parametrize("fault", ["exits", "raises", "promises_too_much"])
@pytest.mark.parametrize("name", EXACT_ENGINES)
def test_another_exact_engine_answers_for_a_broken_one(fault: str, name: str, broken: Break) -> None:
    expected = healthy()
    broken(fault, name)
    decision = allocate(contest(), time_limit=LIMIT)
    assert (decision.solver.rung, decision.solver.status) == ("exact", "optimal")
    assert decision.solver.objective == expected.solver.objective
    asked = EXACT_ENGINES.index(name) == 0
    assert any(note.startswith(f"{name}: ") for note in decision.solver.notes) == asked


def test_an_answer_that_breaks_a_rule_is_refused(broken: Break) -> None:
    """`held` is protected: nobody can start beside it, and nobody may stop it. It is tempting: `n2` would be broken up."""
    broken("crowds_a_node")
    held = running("held", "a", {"n1": 1}, since=NOW - HOUR, protected_until=NOW + HOUR)
    half = snapshot(nodes(2), [budget("a"), budget("b")], [held, job("new", "b", gpus=4)], weights=weights(idle=0, order=1))
    decision = allocate(half, time_limit=LIMIT)
    assert [(row.workload, dict(row.placement)) for row in decision.starts] == [("new", {"n2": 1})]
    assert f"{EXACT_ENGINES[0]}: refused by the verifier: capacity: n1" in " | ".join(decision.solver.notes)


def test_a_bound_above_a_decision_is_reported_and_proves_nothing(broken: Break) -> None:
    broken("bounds_too_high")
    decision = allocate(contest(), time_limit=LIMIT)
    assert (decision.solver.status, decision.solver.bound) == ("feasible", allocate(contest(), engine="greedy").solver.bound)
    assert "lies above the value" in decision.solver.notes[0]


def test_what_solvers_print_does_not_reach_the_answer(broken: Break, capfd: pytest.CaptureFixture[str]) -> None:
    expected = healthy()
    broken("babbles")
    assert timeless(allocate(contest(), time_limit=LIMIT)) == expected
    printed = capfd.readouterr()
    assert printed.out == ""
    assert printed.err.count("another one") == 1000


@pytest.mark.parametrize(
    "boot",
    [
        "import sys; sys.stdin.buffer.read(8); sys.stdout.buffer.write(bytes([99, 0, 0, 0, 0, 0, 0, 0]) + b'half')",
        "import sys; sys.stdin.buffer.read(8); sys.stdout.buffer.write(bytes([4, 0, 0, 0, 0, 0, 0, 0]) + b'what')",
        "import sys; sys.stdin.buffer.read(8); sys.stdout.buffer.write(b'abc')",
        "raise SystemExit(3)",
        "import nowhere",
    ],
    ids=["half an answer", "no answer of ours", "not even a length", "ends at once", "does not start"],
)
def test_a_child_that_dies_while_it_talks(boot: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = allocate(contest(), engine="greedy")
    shared_process().kill()
    monkeypatch.setattr(process, "_BOOT", boot)
    monkeypatch.setattr(portfolio, "EXACT_ENGINES", EXACT_ENGINES[:1])
    shared_process().warm()
    first = shared_process()._child
    decision = allocate(contest(), time_limit=LIMIT)
    assert rows(decision) == rows(expected)
    assert decision.solver.rung == "greedy"
    assert decision.solver.notes[0].startswith(f"{EXACT_ENGINES[0]}: ")
    assert shared_process()._child is not first, "the next call has a new one"
    shared_process().kill()  # which boots in the same way


def test_a_child_that_died_between_two_calls_is_not_missed() -> None:
    expected = healthy()
    shared_process().warm()
    child = shared_process()._child
    assert child is not None
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    assert timeless(allocate(contest(), time_limit=LIMIT)) == expected


def test_without_time_nobody_is_asked() -> None:
    decision = allocate(contest(), time_limit=1e-6)
    assert decision.solver.rung == "greedy"
    assert decision.solver.notes == tuple(f"{name}: no time left" for name in EXACT_ENGINES)


def overfill(problem: EpochProblem, limits: Limits, guess: EpochSolution | None = None) -> EngineResult:
    """A greedy that starts all offers on the first node."""
    units = problem.offers.units.tolist()
    solution = EpochSolution(starts={j: {0: count} for j, count in enumerate(units)})
    return EngineResult("greedy", Status.FEASIBLE, solution, -(10**12), None)


def test_keep_answers_for_a_broken_greedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(greedy, "solve", overfill)
    decision = allocate(contest(), engine="greedy")
    assert decision.solver.rung == "keep"
    assert "greedy: refused by the verifier: capacity: n1" in decision.solver.notes[0]
    assert verify(contest(), decision).ok


def fail(problem: EpochProblem, limits: Limits, guess: EpochSolution | None = None) -> EngineResult:
    """A greedy with a bug."""
    raise ZeroDivisionError("integer division by zero")


def test_keep_answers_where_greedy_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(greedy, "solve", fail)
    decision = allocate(contest(), engine="greedy")
    assert decision.solver.rung == "keep"
    assert decision.solver.notes == ("greedy: ZeroDivisionError: integer division by zero",)


def test_an_exact_engine_answers_where_greedy_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = healthy()
    monkeypatch.setattr(greedy, "solve", fail)
    decision = allocate(contest(), time_limit=LIMIT)
    assert (decision.solver.rung, decision.solver.objective) == ("exact", expected.solver.objective)


def test_an_exact_engine_answers_for_a_broken_greedy(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = healthy()
    monkeypatch.setattr(greedy, "solve", overfill)
    decision = allocate(contest(), time_limit=LIMIT)
    assert (decision.solver.rung, decision.solver.objective) == ("exact", expected.solver.objective)


def test_if_even_keep_is_refused_it_is_raised_as_a_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> Verdict:
        verdict = verify(*args)  # type: ignore[arg-type]
        return replace(verdict, violations=(Violation("capacity", "n1", "is full of eels"),))

    monkeypatch.setattr(engine_module, "verify", refuse)
    with pytest.raises(InfeasibleError, match=r"no rung passes the verifier: greedy: refused .* is full of eels"):
        allocate(contest(), engine="greedy")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"engine": "simplex"}, "unknown engine 'simplex': choose one of portfolio, greedy"),
        ({"time_limit": 0.0}, "time_limit must be above 0"),
        ({"time_limit": float("nan")}, "time_limit must be above 0"),
        ({"gap": -0.1}, "gap at least 0"),
        ({"gap": float("nan")}, "gap at least 0"),
    ],
)
def test_limits_out_of_range_are_refused(wrong: dict[str, float], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        allocate(contest(), **wrong)  # type: ignore[arg-type]


class Counted:
    """A function that counts how often it is called."""

    def __init__(self, function: Callable[..., object]) -> None:
        self.function, self.calls = function, 0

    def __call__(self, *given: object) -> object:
        self.calls += 1
        return self.function(*given)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> tuple[Counted, Counted]:
    """What the engine asks of the verifier and of the explanations."""
    asked = Counted(engine_module.verify), Counted(engine_module.annotate)
    for name, function in zip(("verify", "annotate"), asked, strict=True):
        monkeypatch.setattr(engine_module, name, function)
    return asked


def test_an_answer_that_stays_is_verified_and_explained_once(broken: Break, counted: tuple[Counted, Counted]) -> None:
    expected = allocate(contest(), engine="greedy")
    assert [function.calls for function in counted] == [1, 1]
    broken("exits")
    decision = allocate(contest(), time_limit=LIMIT)
    assert decision.solver.notes
    assert replace(timeless(decision), solver=expected.solver) == timeless(expected)
    assert [function.calls for function in counted] == [2, 2]


def test_another_answer_is_verified_and_explained_anew(counted: tuple[Counted, Counted]) -> None:
    expected = healthy()
    counted[0].calls = counted[1].calls = 0
    assert timeless(allocate(contest(), time_limit=LIMIT)) == expected
    assert [function.calls for function in counted] == [2, 2]


class Late(Clock):
    """A clock of a call that has used most of its time."""

    def __init__(self, spent: float, left: float) -> None:
        super().__init__(left)
        self._begun -= spent


@pytest.mark.parametrize("reserve", [0.0, FOREVER])
def test_where_little_is_left_nobody_is_asked_before_the_answer_is_ready(reserve: float) -> None:
    answers, clock = portfolio.Answers(compile_epoch(entitle(contest()))), Late(2 * FOREVER, 0.5 * FOREVER)
    ready: list[bool] = []

    def prepare() -> float:
        ready.append(not answers.results and not answers.notes)
        assert not shared_process()._lock.locked(), "nobody solves meanwhile"
        return reserve

    portfolio.improve(answers, EXACT_ENGINES[0], clock, 0, 0, prepare, lambda: 0)
    assert ready == [True]
    assert [result.status for result in answers.results] == ([] if reserve else [Status.OPTIMAL])
    assert answers.notes == ([f"{EXACT_ENGINES[0]}: no time left"] if reserve else [])


@pytest.mark.parametrize("engine", ["portfolio", *EXACT_ENGINES])
@pytest.mark.parametrize(("owed", "on"), [(4, 1), (5, 1), (8, 1), (8, 2)])
def test_what_gives_way_to_less_than_it_holds_is_part_of_the_optimum(engine: str, owed: int, on: int) -> None:
    """Only idle GPUs cost, so that `free` would stay if nobody asked for its place: where that is mended, nothing is proven."""
    free = running("free", "a", {f"n{i + 1}": 1 for i in range(on)}, 8 * on, charged=False, min_runtime=0)
    idle = weights(unfairness=0, express=0, lost_work=0, order=0, spread=0, fragmentation=0)
    snap = snapshot(nodes(on), [budget("a"), budget("b")], [free, job("owed", "b", owed)], weights=idle)
    decision = allocate(snap, engine=engine, time_limit=LIMIT)
    assert [row.workload for row in decision.preemptions] == ["free"]
    assert (decision.solver.status, decision.solver.gap) == ("optimal", 0.0)


@pytest.mark.parametrize(("status", "asked"), [(Status.UNKNOWN, 2), (Status.OPTIMAL, 1)])
def test_exact_engines_are_told_what_is_known_until_one_has_proven_its_answer(
    monkeypatch: pytest.MonkeyPatch, status: Status, asked: int
) -> None:
    """Even if the last pass had to mend it at a price: the other engine states the same rules."""
    told: list[tuple[int | None, int | None]] = []

    class Fake:
        @contextmanager
        def solving(
            self, name: str, problem: EpochProblem, limits: Limits, guess: EpochSolution | None
        ) -> Iterator[Callable[[float], EngineResult]]:
            told.append((limits.lower, limits.upper))
            found = EpochSolution() if status is Status.OPTIMAL else None
            yield lambda deadline: EngineResult(name, status, found, None if found is None else 0, -20 if found is None else 0)

    monkeypatch.setattr(portfolio, "shared_process", Fake)
    answers = portfolio.Answers(compile_epoch(entitle(contest())))
    answers.results.append(EngineResult("greedy", Status.FEASIBLE, EpochSolution(), 0, -50))
    portfolio.improve(answers, "portfolio", Clock(LIMIT), 0, 0, lambda: 0.0, lambda: 7)
    assert told == [(-50, 7), (-20, 7)][:asked]
