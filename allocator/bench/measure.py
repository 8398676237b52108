"""Runs cases and takes their times."""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from itertools import groupby
from typing import Any

from allocator.bench.cpu import cpu_seconds
from allocator.bench.engines import solver_of
from allocator.bench.instances import Facts, Instance, facts_of
from allocator.bench.runs import Case, Run
from allocator.domain import Snapshot
from allocator.entitlement import Entitlement, entitle
from allocator.epoch import compile_epoch
from allocator.verify import verify
from allocator.wire import decode_snapshot, encode_decision

logger = logging.getLogger(__name__)

_BUILDERS = {"cp-sat": "allocator.models.cpsat.solver", "milp": "allocator.models.milp.solver"}
"""Exact engines and the modules whose `build` makes their model from a compiled problem."""

_TOTALS = ("total", "total_seconds")
"""Entries of a timing that are no steps."""

WARM_UP = b"""{
"version": 1, "now": 0,
"cluster": {"levels": ["node"], "nodes": [{"name": "n", "pool": "p", "gpus": 1, "domains": []}]},
"budgets": [{"id": "a", "parent": null, "share": 1}, {"id": "b", "parent": null, "share": 1}],
"workloads": [
{"id": "v", "allocation": "a", "submit_time": 0, "tasks": 1, "gpus_per_task": 1, "min_runtime": 3600, "resumable": true},
{"id": "w", "allocation": "b", "submit_time": 0, "tasks": 1, "gpus_per_task": 1, "min_runtime": 3600, "resumable": true}]}"""
"""Solved once by every engine before anything is measured: imports and the start of the solver process are no part of it."""


def run_cases(cases: Iterable[Case], *, refine: bool = True, report: Callable[[Run], None] | None = None) -> list[Run]:
    """Run every case once, instance by instance.

    Parameters
    ----------
    refine
        Also time how long building the exact models takes, by building them once more.
    report
        Called with every run as soon as it is there.
    """
    chosen = sorted(set(cases), key=lambda case: (case.instance.key, case.engine, case.budget))
    _warm_up({case.engine for case in chosen})
    runs = []
    for _, group in groupby(chosen, key=lambda case: case.instance.key):
        own = list(group)
        subject = _Subject.of(own[0].instance)
        for case in own:
            run = _measure(case, subject, refine)
            runs.append(run)
            if report is not None:
                report(run)
    return runs


def _warm_up(engines: Iterable[str]) -> None:
    snapshot = decode_snapshot(WARM_UP)
    for engine in sorted(engines):
        solver_of(engine)(snapshot, 10.0, 0)


@dataclass(slots=True)
class _Subject:
    """An instance that is there, with what all runs on it share. `builds` are seconds by engine, measured once."""

    data: bytes
    snapshot: Snapshot
    ent: Entitlement
    facts: Facts
    builds: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, instance: Instance) -> _Subject:
        logger.info("%s", instance.label)
        data = instance.read()
        ent = entitle(decode_snapshot(data))
        return cls(data, ent.snapshot, ent, facts_of(ent))

    def build_seconds(self, engine: str) -> float | None:
        """How long it takes to build the model of an exact engine; None where that cannot be told apart."""
        if engine not in self.builds:
            try:
                build: Callable[[Any], Any] = import_module(_BUILDERS[engine]).build
            except (ImportError, AttributeError):
                return None
            problem = compile_epoch(self.ent)
            started = time.perf_counter()
            build(problem)
            self.builds[engine] = time.perf_counter() - started
        return self.builds[engine]


def _measure(case: Case, subject: _Subject, refine: bool) -> Run:
    solve = solver_of(case.engine)
    gc.collect()
    cpu, clock = cpu_seconds(), _Clock()
    with clock.step("decode"):
        snapshot = decode_snapshot(subject.data)
    decision = solve(snapshot, case.budget, 0)
    with clock.step("encode"):
        encode_decision(decision)
    seconds, spent = clock.elapsed, cpu_seconds() - cpu
    steps = {**_own_steps(decision.timing, subject, refine), **clock.steps}
    verdict = verify(subject.snapshot, decision, subject.ent)
    return Run(
        case=case,
        facts=subject.facts,
        digest=decision.snapshot,
        rung=decision.solver.rung,
        status=decision.solver.status,
        objective=verdict.score.total,
        bound=decision.solver.bound,
        seconds=seconds,
        cpu_seconds=spent,
        steps={**steps, "other": max(0.0, seconds - sum(steps.values()))},
        starts=len(decision.starts),
        stops=len(decision.preemptions),
        violations=verdict.broken,
        notes=decision.solver.notes,
    )


def _own_steps(timing: Mapping[str, float], subject: _Subject, refine: bool) -> dict[str, float]:
    """The steps as the decision tells them, those of exact engines joined to `build` and `solve`."""
    exact = [name for name in timing if name in _BUILDERS]
    steps = {name: seconds for name, seconds in timing.items() if name not in (*exact, *_TOTALS)}
    if exact:
        builds = [subject.build_seconds(name) if refine else None for name in exact]
        build = sum(seconds for seconds in builds if seconds is not None)
        if build:
            steps["build"] = build
        steps["solve"] = max(0.0, sum(timing[name] for name in exact) - build)
    return steps


class _Clock:
    """Wall clock of one call and of the steps outside the engine."""

    def __init__(self) -> None:
        self._begun = time.perf_counter()
        self.steps: dict[str, float] = {}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        begun = time.perf_counter()
        yield
        self.steps[name] = time.perf_counter() - begun

    @property
    def elapsed(self) -> float:
        return time.perf_counter() - self._begun
