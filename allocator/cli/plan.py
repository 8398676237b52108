"""`allocator plan`: what to buy, and when."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from allocator.cli.documents import AsJson, write_json, write_lines, write_result
from allocator.cli.status import INTERNAL_ERROR, NO, tell

if TYPE_CHECKING:
    from allocator.planning import Answer, Question, Templates

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def plan(
    question: Annotated[
        Path, typer.Argument(metavar="FILE", help="The question, TOML; its tables may be CSV files beside it.")
    ],
    *,
    out: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Folder for plan.json.")] = None,
    time_limit: Annotated[float, typer.Option(metavar="S", min=0.1, help="For the solver.")] = 60.0,
    gap: Annotated[float, typer.Option(min=0, max=1, help="Part of the cost at which to stop.")] = 0.0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the solver.")] = 0,
    no_replay: Annotated[bool, typer.Option("--no-replay", help="Do not play the plan.")] = False,
    measure: Annotated[bool, typer.Option("--measure", help="Only measure [utilisation] by replays, and print it.")] = False,
    as_json: AsJson = False,
) -> None:
    """Plan capacity: which units to order in which quarter, for least discounted cost, so that what is owed is delivered.

    The plan is replayed, and what the replay delivers is shown beside what the plan promises. Exit status 1: no plan meets the
    requirements, and what is missing is printed, or none was found in time.
    """
    from allocator.planning import Templates, read_question, read_trace

    if out is not None and out.exists() and not out.is_dir():
        raise typer.BadParameter(f"{out} is no folder", param_hint="--out")
    asked = read_question(question)
    if measure:
        _measure(asked, Templates(read_trace(asked, question)))
        return
    from allocator.planning import solve

    answer = solve(asked, time_limit, gap, seed)
    view = _view(asked, answer, None if no_replay else question)
    if out is not None:
        _write(view, out)
    _show(view, as_json=as_json)
    if answer.status in ("infeasible", "unknown"):
        raise typer.Exit(NO)
    if answer.status == "invalid":
        tell("internal error", answer.note)
        raise typer.Exit(INTERNAL_ERROR)


def _measure(asked: Question, templates: Templates) -> None:
    from allocator.planning import as_toml, measure_utilisation

    write_lines(as_toml(measure_utilisation(asked.replay, templates)))


def _view(asked: Question, answer: Answer, source: Path | None) -> dict[str, Any]:
    """The answer, replayed if there is a plan and the file it comes from is given."""
    from allocator.planning import Templates, plan_view, read_trace, replay_plan

    if source is None or answer.cost is None:
        return plan_view(asked, answer)
    return plan_view(asked, answer, replay_plan(asked, answer, Templates(read_trace(asked, source))))


def _write(view: dict[str, Any], out: Path) -> None:
    import msgspec

    out.mkdir(parents=True, exist_ok=True)
    write_result(msgspec.json.format(msgspec.json.encode(view), indent=2) + b"\n", out / "plan.json")


def _show(view: dict[str, Any], *, as_json: bool) -> None:
    import sys

    from allocator.planning import as_text, render

    if as_json:
        write_json(view)
    elif sys.stdout.isatty():
        from rich.console import Console

        Console().print(render(view))
    else:
        write_result(as_text(view).encode())
