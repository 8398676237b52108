"""One measured call, and the tidy table of many: a row per call, a column per variable."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from allocator.bench.instances import Facts, Instance

STEPS = ("decode", "entitle", "compile", "greedy", "build", "solve", "last_pass", "verify", "explain", "encode", "other")
"""The steps of a call in their order; `other` is what no step owns up to. Building and solving the exact models is one step
of the call; see `measure`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is to be run: an instance, an engine, and the seconds that the call may take."""

    instance: Instance
    engine: str
    budget: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One call. Seconds are wall clock unless they say CPU; objective and bound are in 1/1000 GPU-second.

    `seconds` and `cpu_seconds` are of the whole call, from the bytes of the snapshot to those of the decision.
    `violations` are what the verifier finds when it is asked once more, from outside.
    """

    case: Case
    facts: Facts
    digest: str
    rung: str
    status: str
    objective: int
    bound: int | None
    seconds: float
    cpu_seconds: float
    steps: Mapping[str, float]
    starts: int
    stops: int
    violations: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def key(self) -> tuple[str, int]:
        """The instance that it is a run of."""
        return self.case.instance.key

    @property
    def known_bound(self) -> int | None:
        """The bound that was known beforehand, if it was proven for this very snapshot."""
        instance = self.case.instance
        return instance.lower_bound if instance.digest in (None, self.digest) else None

    def gap_to(self, bound: int | None) -> float | None:
        """Share of the cluster's time that a better decision could be worth, judged by this bound."""
        return None if bound is None else (self.objective - bound) / self.facts.step


def best_bounds(runs: Iterable[Run], *, with_known: bool = True) -> dict[tuple[str, int], int]:
    """The best bound that any run on an instance has proven or, unless that is not wanted, that was known beforehand."""
    found: dict[tuple[str, int], int] = {}
    for run in runs:
        for bound in (run.bound, run.known_bound if with_known else None):
            if bound is not None:
                found[run.key] = max(bound, found.get(run.key, bound))
    return found


def contradictions(runs: Iterable[Run]) -> list[str]:
    """Answers that keep every rule and yet are better than a bound that somebody claims to have proven."""
    known = list(runs)
    bounds = best_bounds(known)
    return [
        f"{run.case.instance.label}: {run.case.engine} reached {run.objective / 1000}, a bound says {bounds[run.key] / 1000}"
        for run in known
        if run.key in bounds and run.objective < bounds[run.key] and not run.violations
    ]


FIELDS = (
    "instance", "family", "seed", "gpus", "nodes", "pools", "leaves", "running", "waiting", "engine", "budget", "rung",
    "status", "objective", "bound", "gap", "best_bound", "gap_to_best_bound", "seconds", "cpu_seconds",
    *(f"{step}_seconds" for step in STEPS), "starts", "stops", "violations", "notes", "cpu", "python", "ortools", "highs",
    "version",
)  # fmt: skip
"""The columns of the table."""


def as_csv(runs: Iterable[Run], machine: Mapping[str, str]) -> str:
    """All runs as CSV: GPU-seconds, seconds, empty where nothing is known; facts of the machine in every row."""
    known = list(runs)
    bounds = best_bounds(known)
    out = io.StringIO()
    writer = csv.DictWriter(out, FIELDS, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    for run in known:
        writer.writerow({**machine, **_row(run, bounds.get(run.key))})
    return out.getvalue()


def _row(run: Run, best: int | None) -> dict[str, object]:
    facts, instance = run.facts, run.case.instance
    return {
        "instance": instance.name,
        "family": instance.family,
        "seed": instance.seed,
        "gpus": facts.gpus,
        "nodes": facts.nodes,
        "pools": facts.pools,
        "leaves": facts.leaves,
        "running": facts.running,
        "waiting": facts.waiting,
        "engine": run.case.engine,
        "budget": run.case.budget,
        "rung": run.rung,
        "status": run.status,
        "objective": run.objective / 1000,
        "bound": _or_empty(run.bound, 1000),
        "gap": _rounded(run.gap_to(run.bound)),
        "best_bound": _or_empty(best, 1000),
        "gap_to_best_bound": _rounded(run.gap_to(best)),
        "seconds": round(run.seconds, 4),
        "cpu_seconds": round(run.cpu_seconds, 3),
        **{f"{step}_seconds": _rounded(run.steps.get(step), 5) for step in STEPS},
        "starts": run.starts,
        "stops": run.stops,
        "violations": "; ".join(run.violations),
        "notes": "; ".join(run.notes),
    }


def _or_empty(value: int | None, unit: int) -> float | str:
    return "" if value is None else value / unit


def _rounded(value: float | None, digits: int = 8) -> float | str:
    return "" if value is None else round(value, digits)
