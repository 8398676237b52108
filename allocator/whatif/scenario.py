"""Scenarios: read from TOML, checked as a whole, with all variants written out."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import msgspec

from allocator.domain import Issue, SnapshotError
from allocator.generate.any_trace import DEFAULT_JITTER, TraceRecipe
from allocator.generate.files import read_text, refuse
from allocator.whatif.budget_edits import BudgetEdit
from allocator.whatif.pieces import BASE, Piece, pieces_of
from allocator.whatif.scenario_doc import EditsDoc, GenerateDoc, ReplayDoc, RunDoc, ScenarioDoc
from allocator.whatif.spans import in_seconds, seconds, span_issues
from allocator.wire.shapes import nearest, problems

_FILES = ("log", "budgets", "on_top")
"""Fields of a recipe that name files; they are looked for beside the scenario."""

_ELSEWHERE = ("variants", "matrix")
"""Checked piece by piece."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """What is changed in the base.

    Attributes
    ----------
    name
        Part of the name of a folder.
    raw
        The edits as they were written, spans as seconds: `policy` is taken from here, because a field that is not given stays.
    edits, budgets
        The same as objects.
    """

    name: str
    title: str
    raw: Mapping[str, Any] = field(default_factory=dict)
    edits: EditsDoc = field(default_factory=EditsDoc)
    budgets: tuple[BudgetEdit, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """Where the trace comes from: one of the two is given."""

    trace: Path | None = None
    recipe: TraceRecipe | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A question, ready to be played.

    Attributes
    ----------
    baseline
        Name of the variant with which the others are compared; it stands first.
    seeds
        Empty: every variant is played once, and nothing is drawn.
    draw
        What a seed draws: `days`, `jitter` or `generator`.
    jitter
        In seconds.
    """

    name: str
    title: str
    base: Base
    variants: tuple[Variant, ...]
    baseline: str = BASE
    replay: ReplayDoc = field(default_factory=ReplayDoc)
    seeds: tuple[int, ...] = ()
    draw: str = "jitter"
    jitter: int = 600
    run: RunDoc = field(default_factory=RunDoc)


def load_scenario(path: Path) -> Scenario:
    """Read a scenario; the files that it names are looked for in its folder.

    Raises
    ------
    SnapshotError
        With every problem of the file, and of the change sets that it names.
    """
    try:
        raw = tomllib.loads(read_text(path))
    except tomllib.TOMLDecodeError as error:
        raise refuse("$", f"is no TOML ({error})", "correct the file") from error
    return read_scenario(raw, path.parent, path.stem)


def read_scenario(raw: Mapping[str, Any], folder: Path, name: str) -> Scenario:
    """The scenario of the tables of a file. Raises as `load_scenario`."""
    whole = {key: in_seconds(value, key) for key, value in raw.items()}
    issues = problems({key: value for key, value in whole.items() if key not in _ELSEWHERE}, ScenarioDoc, "$")
    pieces, wrong = pieces_of(whole, folder)
    issues += wrong
    if not issues:
        doc = msgspec.convert({key: value for key, value in whole.items() if key not in _ELSEWHERE}, ScenarioDoc)
        issues = [*_base_issues(doc), *_draw_issues(doc), *_baseline_issues(doc, pieces)]
    if issues:
        raise SnapshotError(issues)
    return Scenario(
        name=name,
        title=doc.title,
        base=_base(doc, folder),
        variants=_variants(pieces, doc.baseline),
        baseline=doc.baseline or BASE,
        replay=doc.replay,
        seeds=tuple(doc.seeds),
        draw=_draw(doc),
        jitter=seconds(doc.jitter or DEFAULT_JITTER),
        run=doc.run,
    )


def _variants(pieces: list[Piece], baseline: str | None) -> tuple[Variant, ...]:
    """The baseline first: one of the variants, or the base without any edits."""
    variants = [
        Variant(
            name=piece.name,
            title=piece.title,
            raw=piece.raw,
            edits=msgspec.convert({key: value for key, value in piece.raw.items() if key != "budgets"}, EditsDoc),
            budgets=piece.budgets,
        )
        for piece in pieces
    ]
    if baseline is None:
        variants.insert(0, Variant(name=BASE, title="The trace as it is"))
    return tuple(sorted(variants, key=lambda variant: variant.name != (baseline or BASE)))


def _base(doc: ScenarioDoc, folder: Path) -> Base:
    if doc.base.trace is not None:
        return Base(trace=folder / doc.base.trace)
    assert doc.base.generate is not None
    return Base(recipe=_recipe(doc.base.generate, folder))


def _recipe(doc: GenerateDoc, folder: Path) -> TraceRecipe:
    given = {one.name: getattr(doc, one.name) for one in fields(TraceRecipe)}
    given |= {name: folder / given[name] for name in _FILES if given[name] is not None}
    if doc.scenario is not None and doc.scenario.endswith(".toml"):
        given["scenario"] = str(folder / doc.scenario)
    return TraceRecipe(**given)


def _draw(doc: ScenarioDoc) -> str:
    return doc.draw or ("generator" if doc.base.generate is not None else "jitter")


def _base_issues(doc: ScenarioDoc) -> Iterator[Issue]:
    if (doc.base.trace is None) == (doc.base.generate is None):
        yield Issue(path="$.base", problem="it says not once what is played", remedy="give one of trace and generate")


def _draw_issues(doc: ScenarioDoc) -> Iterator[Issue]:
    yield from span_issues("$.jitter", doc.jitter)
    for at, seed in enumerate(doc.seeds):
        if seed in doc.seeds[:at]:
            yield Issue(path=f"$.seeds[{at}]", problem=f"{seed} is given twice", remedy="give each seed once")
    if doc.draw is not None and not doc.seeds:
        yield Issue(path="$.draw", problem="nothing is drawn without seeds", remedy="give seeds, or leave draw out")
    if doc.draw == "generator" and doc.base.generate is None:
        yield Issue(path="$.draw", problem="a trace file has no generator", remedy="give jitter or days, or base.generate")
    if doc.jitter is not None and not (doc.seeds and _draw(doc) == "jitter"):
        remedy = 'leave it out, or give seeds and draw = "jitter"'
        yield Issue(path="$.jitter", problem="it has no effect where seeds move no submissions", remedy=remedy)


def _baseline_issues(doc: ScenarioDoc, pieces: list[Piece]) -> Iterator[Issue]:
    names = [piece.name for piece in pieces]
    if doc.baseline is not None and doc.baseline not in names:
        yield Issue(path="$.baseline", problem=f"no variant is called {doc.baseline!r}", remedy=nearest(doc.baseline, names))
    if doc.baseline is None and BASE in names:
        problem = f"{BASE!r} is the name of the trace as it is"
        yield Issue(path="$.variants", problem=problem, remedy="give the variant another name, or name the baseline")
