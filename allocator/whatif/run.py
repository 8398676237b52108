"""A scenario from beginning to end: check everything, play what is not there yet, compare."""

from __future__ import annotations

import gzip
import itertools
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from allocator.domain import Issue, SnapshotError
from allocator.domain.trace import Trace
from allocator.replay import ReplayError
from allocator.whatif.backends import run_all
from allocator.whatif.cells import Cell, cell_folder, options_of, play_cell, policy_of, trace_file
from allocator.whatif.comparison import Samples, as_documents, compare_cells, compare_pools, compare_projects
from allocator.whatif.draws import bases
from allocator.whatif.edits import checked
from allocator.whatif.folder import only_run, refuse_foreign, tidy
from allocator.whatif.gains import has_speed
from allocator.whatif.results import COMPARISON, POOLS, PROJECTS, WHATIF, write_document, write_table, write_whole
from allocator.whatif.samples import Name, Sample, sample_cell
from allocator.whatif.scenario import Scenario
from allocator.whatif.sentences import sentences
from allocator.wire import encode_trace

logger = logging.getLogger(__name__)

Told = Callable[[int, int, int], None]
"""Cells that are done, of how many, and how many of them were kept from before."""


def run_scenario(scenario: Scenario, folder: Path, told: Told = lambda done, total, kept: None) -> dict[str, Any]:
    """Play a scenario into a folder, and compare; returns what is written to `whatif.json`.

    Cells that were played before from the same trace, edits and settings are kept, so that a run which was broken off goes on.
    One run at a time for a folder. A cell that is damaged is named in a warning, and played anew.

    Raises
    ------
    SnapshotError
        With everything that is wrong with the edits on this trace.
    WhatIfError
        If a cell breaks off, the backend is not what was asked for, or the folder is of something else or in use.
    MissingExtraError
        If a package is not installed.
    """
    folder = folder.resolve()  # workers may stand elsewhere
    refuse_foreign(folder)
    traces = _checked(scenario)
    with only_run(folder):
        seeds = _lay_out(traces, folder)
        cells = [Cell(variant=variant, seed=seed, replay=scenario.replay) for variant in scenario.variants for seed in seeds]
        for sentence in tidy(folder, [cell.key for cell in cells]):
            logger.warning("%s", sentence)
        kept = 0
        for done, was_kept in enumerate(run_all(play_cell, ((cell, folder) for cell in cells), scenario.run), start=1):
            kept += was_kept
            told(done, len(cells), kept)
        found = _compared(scenario, seeds, cells, folder)
        write_document(folder / WHATIF, found)
    return found


def _checked(scenario: Scenario) -> Iterator[tuple[int, Trace]]:
    """The seeds with their traces, once everything is known to fit the first one."""
    found = bases(scenario)
    seed, trace = next(found)
    if issues := [*_check(scenario, trace, seed)]:
        raise SnapshotError(issues)
    return itertools.chain([(seed, trace)], found)


def _lay_out(traces: Iterable[tuple[int, Trace]], folder: Path) -> list[int]:
    """Write the trace of every seed; returns the seeds."""
    seeds: list[int] = []
    for seed, trace in traces:
        file = trace_file(folder, seed)
        file.parent.mkdir(exist_ok=True)
        write_whole(file, gzip.compress(encode_trace(trace), mtime=0))
        seeds.append(seed)
    return seeds


def _check(scenario: Scenario, trace: Trace, seed: int) -> Iterator[Issue]:
    """All that is wrong with any variant on the trace of the first seed; the others have the same nodes and budgets."""
    for variant in scenario.variants:
        yield from checked(trace, variant, seed)
        settings = Cell(variant=variant, seed=seed, replay=scenario.replay).settings
        try:
            policy_of(settings)
            options_of(settings, trace.start)
        except ReplayError as error:
            yield Issue(path=f"variant {variant.name}: replay", problem=str(error), remedy="see `allocator replay --help`")


def _compared(scenario: Scenario, seeds: list[int], cells: list[Cell], folder: Path) -> dict[str, Any]:
    """The document of the whole scenario; the tables are written on the way."""
    names = [variant.name for variant in scenario.variants]
    samples = _samples(seeds, cells, folder, scenario)
    rows, projects = compare_cells(samples, names, seeds), compare_projects(samples, names, seeds)
    write_table(folder / COMPARISON, rows)
    write_table(folder / PROJECTS, projects)
    pools = compare_pools(samples, names, seeds)
    write_table(folder / POOLS, pools)
    return {
        "name": scenario.name,
        "scenario": scenario.title,
        "base": scenario.baseline,
        "variants": [{"name": one.name, "title": one.title, "edits": dict(one.raw)} for one in scenario.variants],
        "seeds": seeds,
        "draw": scenario.draw if scenario.seeds else None,
        "cells": [{"key": cell.key, "variant": cell.variant.name, "seed": cell.seed} for cell in cells],
        "comparison": as_documents(rows),
        "projects": as_documents(projects),
        "pools": as_documents(pools),
        "sentences": sentences(
            rows, projects, names, len(seeds), {one.name for one in scenario.variants if has_speed(one.raw)}
        ),
    }


def _samples(seeds: list[int], cells: list[Cell], folder: Path, scenario: Scenario) -> Samples:
    """Drawn in parallel too: it takes a second or more for each cell."""
    work = ((at, cell_folder(folder, cell.key), seeds.index(cell.seed)) for at, cell in enumerate(cells))
    found = dict(run_all(_sample, work, scenario.run))
    return {(cell.variant.name, cell.seed): found[at] for at, cell in enumerate(cells)}


def _sample(at: int, folder: Path, stream: int) -> tuple[int, Mapping[Name, Sample]]:
    """The samples of a cell with its place: they come in any order."""
    return at, sample_cell(folder, stream)
