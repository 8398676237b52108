"""One trace from whatever is given: a job log, recorded epochs, a scenario, or a seed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path

from allocator.domain.trace import Trace
from allocator.generate.files import refuse
from allocator.generate.instant import parse_span
from allocator.generate.organisation_trace import TraceParams, generate_trace
from allocator.generate.recorded import trace_from_record
from allocator.generate.scenario import generate_scenario
from allocator.generate.trace_from import LogOptions, parse_days, trace_from_log
from allocator.record import is_record

DEFAULT_JITTER = "10m"

_OF_LOGS = ("format", "jitter", "budgets", "tenants", "on_top")
_OF_SEEDS = ("pools", "squatters", "deadline", "scenario")


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRecipe:
    """How a trace is made; None is the usual. The names are those of the options of `allocator generate trace`.

    Attributes
    ----------
    log
        A job log; with it `format`, `jitter`, `budgets`, `tenants` and `on_top` count, without it `scenario`, `pools`,
        `squatters` and `deadline`.
        Or recorded epochs, a folder or one of its files: nothing else counts then.
    days
        A number, or with a log the first day and the day after the last, as 7:14.
    jitter
        A span as 10m.
    tenants
        Of a log, with commas between them.
    on_top
        A second log, laid over the first.
    """

    log: Path | None = None
    format: str | None = None
    scenario: str | None = None
    gpus: int | None = None
    pools: int | None = None
    days: str | None = None
    load: float | None = None
    seed: int | None = None
    jitter: str | None = None
    budgets: Path | None = None
    failures: float | None = None
    squatters: float | None = None
    deadline: int | None = None
    tenants: str | None = None
    on_top: Path | None = None


def make_trace(recipe: TraceRecipe) -> Trace:
    """The trace of a recipe; the same recipe gives the same trace.

    Raises
    ------
    SnapshotError
        If an option would have no effect, a file cannot be read, or the parameters make no sense together.
    """
    if recipe.log is not None and is_record(recipe.log):
        _refuse_idle(recipe, [field.name for field in fields(recipe) if field.name != "log"], "recorded epochs")
        return trace_from_record(recipe.log)
    if recipe.log is not None:
        _refuse_idle(recipe, _OF_SEEDS, "a job log")
        return trace_from_log(recipe.log, _log_options(recipe))
    _refuse_idle(recipe, _OF_LOGS, "a synthetic trace (no job log)")
    given = {name: getattr(recipe, name) for name in ("gpus", "pools", "load", "seed", "failures", "squatters", "deadline")}
    given = {name: value for name, value in {**given, "days": _number_of_days(recipe.days)}.items() if value is not None}
    return generate_trace(TraceParams(**given)) if recipe.scenario is None else generate_scenario(recipe.scenario, given)


def _log_options(recipe: TraceRecipe) -> LogOptions:
    """A seed moves submissions; without one they stay as recorded."""
    if recipe.jitter is not None and recipe.seed is None:
        raise refuse("jitter", "submissions are moved by a seed, and there is none", "give --seed too")
    return LogOptions(
        form=recipe.format,
        gpus=recipe.gpus,
        days=parse_days(recipe.days) if recipe.days is not None else (0, None),
        load=recipe.load,
        seed=recipe.seed or 0,
        jitter=parse_span(recipe.jitter or DEFAULT_JITTER) if recipe.seed is not None else 0,
        budgets=recipe.budgets,
        failures=recipe.failures or 0.0,
        tenants=tuple(recipe.tenants.split(",")) if recipe.tenants is not None else (),
        on_top=recipe.on_top,
    )


def _number_of_days(text: str | None) -> int | None:
    if text is not None and not text.isdigit():
        raise refuse("days", f"{text!r} is no number of days", "give a number; spans as 7:14 belong to job logs")
    return None if text is None else int(text)


def _refuse_idle(recipe: TraceRecipe, names: Iterable[str], beside: str) -> None:
    """Refuse options that would have no effect."""
    for name in names:
        if getattr(recipe, name) is not None:
            raise refuse(name, f"has no effect beside {beside}", "leave it out")
