"""The page: everything of a report put together."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from allocator.domain import printable
from allocator.pages.costs import cost_figures, lost_in
from allocator.pages.draw import import_matplotlib
from allocator.pages.engine import engine_figures, rungs_of
from allocator.pages.figure import Figure, Table
from allocator.pages.floor import PIECES, Floor, floor_of, gradient, label_of
from allocator.pages.gains import Gains, gains_of
from allocator.pages.measures import (
    VERDICTS,
    Measures,
    measure_figure,
    measures_of_many,
    measures_of_one,
    measures_of_study,
    sentences_of_many,
)
from allocator.pages.palette import LETTERS, MARKS, ROLE_OF, variables
from allocator.pages.promises import reservation_figures
from allocator.pages.source import Run, is_study, read_runs, read_study
from allocator.pages.usage import usage_figures
from allocator.pages.waits import wait_figures
from allocator.pages.words import facts_of, sentences_of, title_of
from allocator.replay.errors import ReplayError
from allocator.replay.summary import read_summary
from allocator.replay.tables import import_pandas

TEMPLATE = "report.html.j2"


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the account of a replay. `nothing` is said where there is no picture."""

    key: str
    title: str
    figures: Sequence[Figure]
    floor: Floor | None = None
    table: Table | None = None
    nothing: str = ""


@dataclass(frozen=True, slots=True)
class Account:
    """One replay in pictures."""

    run: Run
    title: str
    facts: str
    sentences: Sequence[str]
    parts: Sequence[Part]


@dataclass(frozen=True, slots=True)
class Report:
    """What the template shows."""

    title: str
    facts: Sequence[str]
    sentences: Sequence[str]
    measures: Measures
    drawn: Figure | None
    accounts: Sequence[Account]
    left_out: str = ""
    gains: Sequence[Gains] = ()


def build_report(folders: Sequence[Path], title: str | None = None) -> str:
    """One HTML page of the results of replays, or of a what-if study.

    Parameters
    ----------
    folders
        Folders that `allocator replay --out` has written, compared if there are several; or one that `allocator whatif`
        has written.
    title
        Heading of the page; None: what was replayed.

    Returns
    -------
    A document that needs no other file and no network. The same folders give the same bytes.

    Raises
    ------
    ReplayError
        If a folder holds no results, or a study is given together with others.
    MissingExtraError
        If what the extra `report` brings is not installed.
    """
    import_pandas()
    import_matplotlib()
    if any(map(is_study, folders)):
        if len(folders) > 1:
            raise ReplayError("a what-if study is a comparison already: give it alone, or give folders of replays only")
        report = _of_study(folders[0], title)
    else:
        report = _of_replays(folders, title)
    return _render(report)


def _of_replays(folders: Sequence[Path], title: str | None) -> Report:
    runs = read_runs(folders)
    if len(folders) == 1:
        (run,) = runs
        measures = measures_of_one(run)
        heading, facts = title or title_of(run.summary), [facts_of(run.summary), *run.summary["notes"]]
        sentences = sentences_of(run.summary, lost_in(run))
    else:
        measures, comparable = measures_of_many(folders, [read_summary(folder) for folder in folders])
        heading = title or f"{', '.join(measures.labels[:-1])} and {measures.labels[-1]} compared"
        facts = [f"{run.label}: {title_of(run.summary)}. {facts_of(run.summary)}" for run in runs]
        sentences = sentences_of_many(measures, comparable=comparable)
    return Report(
        heading, facts, sentences, measures, measure_figure(measures), [_account(run) for run in runs], _left_out(runs, folders)
    )


def _of_study(folder: Path, title: str | None) -> Report:
    study = read_study(folder)
    document = study.document
    runs = read_runs([cell for _, cell in study.cells], [name for name, _ in study.cells])
    measures = measures_of_study(study)
    variants = [f"{row['name']}: {row.get('title') or row['name']}" for row in document["variants"]]
    seeds = ", ".join(map(str, document["seeds"]))
    facts = [*variants, f"Seeds: {seeds}. Differences are to {document['base']}. The pictures are of the first seed."]
    return Report(
        title or document.get("scenario") or document["name"], facts, document["sentences"], measures, measure_figure(measures),
        [_account(run) for run in runs], _left_out(runs, study.cells), list(gains_of(document)),
    )  # fmt: skip


def _left_out(runs: Sequence[Run], every: Sequence[object]) -> str:
    if len(runs) == len(every):
        return ""
    return f"Pictures are of the first {len(runs)} of {len(every)}; report the others by themselves to see theirs."


def _account(run: Run) -> Account:
    key = run.key
    floor = floor_of(run)
    parts = (
        Part(f"{key}-usage", "Who got what", usage_figures(run)),
        Part(f"{key}-waits", "Waits", wait_figures(run), nothing="No job was submitted."),
        Part(
            f"{key}-map", "Who runs where", (), floor=floor,
            nothing="These results were written by a version that did not keep who was where: replay again to see the map.",
        ),
        Part(f"{key}-promises", "Reservations", reservation_figures(run), nothing="No bound was stated for a reservation."),
        Part(f"{key}-costs", "Stops and their cost", cost_figures(run)),
        Part(
            f"{key}-engine", "Engine", engine_figures(run), table=rungs_of(run),
            nothing="No decision has a bound, and the time of decisions was not kept.",
        ),
    )  # fmt: skip
    return Account(run, title_of(run.summary), facts_of(run.summary), sentences_of(run.summary, lost_in(run)), parts)


def _render(report: Report) -> str:
    template = _environment().get_template(TEMPLATE)
    page: str = template.render(
        report=report,
        light=variables(dark=False),
        dark=variables(dark=True),
        verdicts=VERDICTS,
        data={account.run.key: _script_data(part.floor) for account in report.accounts for part in account.parts if part.floor},
    )
    return page


def _script_data(floor: Floor) -> str:
    """What the script of the page needs to show another hour, as JSON that may stand in a page."""
    document: Mapping[str, Any] = {
        "hours": floor.hours,
        "states": floor.states,
        "names": floor.names,
        "roles": ROLE_OF,
        "marks": MARKS,
        "letters": LETTERS,
        "pieces": PIECES,
    }
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


def _plain(value: Any) -> Any:
    """What a page shows of a value: of names, nothing that would steer a terminal or turn the direction of writing."""
    return printable(value) if type(value) is str else value  # not of what is HTML already, which has lines


@cache
def _environment() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("allocator.pages", "template"), finalize=_plain,
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters |= {"gradient": gradient, "mark": label_of}
    return environment
