"""`python -m benchmarks.results`: play all studies and write the page.

    python -m benchmarks.results --out build/results --report docs/results.md

A run that is broken off goes on where it was; cells are played on all cores. Job logs are read from `--logs`, and left out
without it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path

from allocator.whatif import run_scenario
from allocator.whatif.scenario_doc import RunDoc
from benchmarks.results.page import page_of
from benchmarks.results.played import with_details
from benchmarks.results.studies import Size, studies


def main(arguments: Sequence[str] | None = None) -> None:
    """Play what is asked for, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.results", description="Play all studies and write the page.")
    parser.add_argument("studies", nargs="*", help="names of studies; absent: all")
    usual = Size()
    parser.add_argument("--gpus", type=int, default=usual.gpus, help="of the organisation")
    parser.add_argument("--pools", type=int, default=usual.pools, choices=(1, 3), help="of the organisation")
    parser.add_argument("--days", type=int, default=usual.days, help="of the organisation")
    parser.add_argument("--seeds", type=int, default=usual.seeds, help="how many of each")
    parser.add_argument("--settings-days", type=int, default=usual.settings_days, help="of it for settings")
    parser.add_argument("--logs", type=Path, help="folder of job logs")
    parser.add_argument("--jobs", type=int, default=-1, help="cells at a time; -1: one for each core")
    parser.add_argument("--out", type=Path, required=True, help="folder for all results")
    parser.add_argument("--report", type=Path, help="page to write")
    asked = parser.parse_args(arguments)
    size = Size(**{one.name: getattr(asked, one.name) for one in fields(Size)})
    known = list(studies(size, asked.logs))
    names = [study.name for study in known]
    if unknown := [name for name in asked.studies if name not in names]:
        parser.error(f"there is no study {', '.join(unknown)}: choose from {', '.join(names)}")
    found = []
    for study in known:
        if asked.studies and study.name not in asked.studies:
            continue
        scenario = replace(study.scenario, run=RunDoc(jobs=asked.jobs))
        answer = run_scenario(scenario, asked.out / study.name, _teller(study.name))
        found.append((study, with_details(answer, asked.out / study.name)))
    if asked.report is not None:
        asked.report.write_text(page_of(size, _command(asked), found), encoding="utf-8")


def _command(asked: argparse.Namespace) -> str:
    """The command that gives the same page anywhere."""
    sizes = (f"--{one.name.replace('_', '-')} {getattr(asked, one.name)}" for one in fields(Size))
    logs = () if asked.logs is None else ("--logs LOGS",)
    return " ".join(["python -m benchmarks.results", *asked.studies, *sizes, *logs, "--out OUT --report PAGE"])


def _teller(name: str) -> Callable[[int, int, int], None]:
    """Tells on standard error how far a study is."""

    def told(done: int, total: int, kept: int) -> None:
        print(f"\r{name}: {done} of {total} cells, {kept} kept", end="\n" if done == total else "", file=sys.stderr, flush=True)

    return told


if __name__ == "__main__":
    main()
