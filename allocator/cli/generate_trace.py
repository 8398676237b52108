"""`allocator generate trace`: what a replay plays, from a seed, from a scenario, or from a job log."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from allocator.cli.documents import OutFile, check_writable, write_result
from allocator.cli.status import tell
from allocator.domain.trace import Trace

DEFAULT_JITTER = "10m"


def trace(
    *,
    from_log: Annotated[
        Path | None, typer.Option("--from", help="Job log: CSV, SWF or `sacct -P`, plain, gzip or zip of one file.")
    ] = None,
    form: Annotated[
        str | None, typer.Option("--format", help="With --from: name of the form; absent: found by its columns.")
    ] = None,
    scenario: Annotated[
        str | None, typer.Option(help="Name of a shipped scenario, or a recipe file; `list` names them.")
    ] = None,
    gpus: Annotated[int | None, typer.Option(help="Installed GPUs; absent: 1792, or what the log is known to fill.")] = None,
    pools: Annotated[int | None, typer.Option(help="1 (h100) or 3 (h100, b200, b300); absent: 3.")] = None,
    days: Annotated[str | None, typer.Option(help="Number of days; with --from first day and day after last: 7:14.")] = None,
    load: Annotated[float | None, typer.Option(help="Offered load: GPU time asked for over that of the cluster.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of all that is drawn; with --from it also moves jobs.")] = None,
    jitter: Annotated[str | None, typer.Option(help=f"With --seed: most that jobs move; absent: {DEFAULT_JITTER}.")] = None,
    budgets: Annotated[Path | None, typer.Option(help="With --from: a tree of shares instead of the log's own.")] = None,
    failures: Annotated[float | None, typer.Option(help="Node failures per GPU and day; absent: 5e-4, for logs 0.")] = None,
    squatters: Annotated[float | None, typer.Option(help="Part of the users who keep idle sessions; absent: 0.25.")] = None,
    deadline: Annotated[int | None, typer.Option(help="Day of a conference deadline: more work before, less after.")] = None,
    out: OutFile = None,
) -> None:
    """Write one trace."""
    from allocator.wire import encode_trace

    check_writable(out)
    drawn = {"pools": pools, "squatters": squatters, "deadline": deadline}
    logged = {"format": form, "jitter": jitter, "budgets": budgets}
    common = {"gpus": gpus, "load": load, "seed": seed, "failures": failures}
    if from_log is not None:
        _refuse("--from", {**drawn, "scenario": scenario})
        made = _from_log(from_log, days, **common, **logged)
    else:
        _refuse("a synthetic trace (no --from)", logged)
        if scenario == "list":
            _list_scenarios()
            return
        given = {**common, **drawn, "days": _number_of_days(days)}
        made = _synthetic(scenario, {name: value for name, value in given.items() if value is not None})
    for note in made.notes:
        tell("note", note)
    write_result(encode_trace(made), out)


def _from_log(path: Path, days: str | None, **given: Any) -> Trace:
    """The trace of a log. A seed moves submissions; without one they stay as recorded."""
    from allocator.generate.instant import parse_span
    from allocator.generate.trace_from import LogOptions, parse_days, trace_from_log

    seed, jitter = given["seed"], given["jitter"]
    if jitter is not None and seed is None:
        raise typer.BadParameter("submissions are moved by a seed: give --seed too", param_hint="--jitter")
    options = LogOptions(
        form=given["format"],
        gpus=given["gpus"],
        days=parse_days(days) if days is not None else (0, None),
        load=given["load"],
        seed=seed or 0,
        jitter=parse_span(jitter or DEFAULT_JITTER) if seed is not None else 0,
        budgets=given["budgets"],
        failures=given["failures"] or 0.0,
    )
    return trace_from_log(path, options)


def _synthetic(scenario: str | None, given: dict[str, Any]) -> Trace:
    """The research organisation, with what happens in the scenario."""
    from allocator.generate.organisation_trace import TraceParams, generate_trace
    from allocator.generate.scenario import generate_scenario

    return generate_trace(TraceParams(**given)) if scenario is None else generate_scenario(scenario, given)


def _list_scenarios() -> None:
    from allocator.cli.documents import write_lines
    from allocator.generate.scenario import scenarios

    write_lines([f"{name:20} {title}" for name, title in scenarios().items()])


def _number_of_days(text: str | None) -> int | None:
    if text is not None and not text.isdigit():
        raise typer.BadParameter(f"{text!r} is no number of days; spans as 7:14 belong to --from", param_hint="--days")
    return None if text is None else int(text)


def _refuse(option: str, given: dict[str, Any]) -> None:
    """Refuse options that would have no effect."""
    for name, value in given.items():
        if value is not None:
            raise typer.BadParameter(f"has no effect beside {option}: leave one of them out", param_hint=f"--{name}")
