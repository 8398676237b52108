"""`python -m benchmarks.results`: play all studies and write the page.

    python -m benchmarks.results --out build/results --report docs/results.md

A run that is broken off goes on where it was; cells are played on all cores. Job logs are read from `--logs`, and left out
without it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path

from allocator.whatif import run_scenario
from allocator.whatif.results import WHATIF
from allocator.whatif.scenario_doc import RunDoc
from benchmarks.results.figures import Found
from benchmarks.results.page import page_of
from benchmarks.results.played import with_details
from benchmarks.results.studies import Size, Study, studies


def main(arguments: Sequence[str] | None = None) -> None:
    """Play what is asked for, and write the page."""
    parser = _parser()
    asked = parser.parse_args(arguments)
    size = Size(**{one.name: getattr(asked, one.name) for one in fields(Size)})
    known = {study.name: study for study in studies(size, asked.logs)}
    if unknown := [name for name in asked.studies if name not in known]:
        parser.error(f"there is no study {', '.join(unknown)}: choose from {', '.join(known)}")
    chosen = [study for name, study in known.items() if name in asked.studies or not asked.studies]
    found = [(study, _answer(study, asked)) for study in chosen]
    if asked.report is not None:
        asked.report.write_text(page_of(size, _command(asked), found), encoding="utf-8")


def _parser() -> argparse.ArgumentParser:
    usual = Size()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.results", description="Play all studies and write the page.")
    parser.add_argument("studies", nargs="*", help="names of studies; absent: all")
    parser.add_argument("--gpus", type=int, default=usual.gpus, help="of the organisation")
    parser.add_argument("--pools", type=int, default=usual.pools, choices=(1, 3), help="of the organisation")
    parser.add_argument("--days", type=int, default=usual.days, help="of the organisation")
    parser.add_argument("--seeds", type=int, default=usual.seeds, help="how many of each")
    parser.add_argument("--settings-days", type=int, default=usual.settings_days, help="of it for settings")
    parser.add_argument("--logs", type=Path, help="folder of job logs")
    parser.add_argument("--jobs", type=int, default=-1, help="cells at a time; -1: one for each core")
    parser.add_argument("--as-played", action="store_true", help="play nothing: the page of what lies in --out")
    parser.add_argument("--out", type=Path, required=True, help="folder for all results")
    parser.add_argument("--report", type=Path, help="page to write")
    return parser


def _answer(study: Study, asked: argparse.Namespace) -> Found:
    """What a study has come to: played, or read."""
    folder: Path = asked.out / study.name
    if asked.as_played:
        answer = json.loads((folder / WHATIF).read_text(encoding="utf-8"))
    else:
        scenario = replace(study.scenario, run=RunDoc(jobs=asked.jobs))
        answer = run_scenario(scenario, folder, _teller(study.name))
    return with_details(answer, folder)


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
