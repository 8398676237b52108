"""`python -m benchmarks bars`: what is asked of whole calls at size (`bars.toml`), measured, and written into a page."""

from __future__ import annotations

import argparse
import re
import resource
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Literal

from allocator.bench import Case, Catalogue, Run, register, run_cases
from allocator.bench.documents import Doc, Name, Positive, read_toml
from allocator.bench.machine import machine_facts
from allocator.bench.report import read_page, write_report
from allocator.bench.table import facts_line, markdown_table, run_line
from allocator.domain import Decision, Snapshot, SnapshotError
from allocator.engine import allocate
from allocator.models.process import shared_process
from benchmarks.naive import solve_naive

FILE = Path(__file__).with_name("bars.toml")

MARK = "bars"
"""The name of the marks around the numbers in a page."""


class BarDoc(Doc, kw_only=True):
    """One bar: seconds of the whole call (median, and perhaps worst), the gap to be proven, and memory."""

    name: Name
    about: str
    instance: Name
    budget: Positive
    seconds: Positive
    engine: str = "portfolio"
    worst: Positive | None = None
    gap: float | None = None
    ask: float = 0.0
    mebibytes: int | None = None


class NaiveDoc(Doc, kw_only=True):
    """The naive formulation to a gap, cut at the budget, takes at least so many times our time to the same gap."""

    about: str
    instance: Name
    gap: Positive
    budget: Positive
    times: Positive


class BarsDoc(Doc, kw_only=True):
    """The file `bars.toml`."""

    version: Literal[1]
    bar: list[BarDoc]
    naive: NaiveDoc


HEAD = ("what", "call, s", "worst", "bar", "CPU, s", "worst", "gap, worst", "bar", "MiB", "runs", "kept")
"""Columns: seconds of wall clock and CPU of the whole call, median and worst, beside what is asked."""


def main(arguments: Sequence[str]) -> int:
    """Measure the bars; 1 if an answer breaks a rule."""
    options = _options(arguments)
    doc = read_toml(FILE, BarsDoc)
    chosen = [bar for bar in doc.bar if not options.only or bar.name in options.only]
    rows, wrong = [], 0
    for bar in chosen:
        row, broken = _alone(bar, options.seeds)
        wrong += broken
        rows.append(row)
    if not options.only or MARK_NAIVE in options.only:
        rows.append(_naive_row(doc.naive, Catalogue.open(), options.seeds))
    lines = [*markdown_table(HEAD, rows), "", f"Seeds {', '.join(map(str, options.seeds))}. {_measured()}"]
    sys.stdout.write("\n".join(lines) + "\n")
    if options.report is not None:
        write_report(options.report, MARK, "\n".join(lines))
    return 1 if wrong else 0


MARK_NAIVE = "naive"


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks bars", description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="bars by name; `naive` is the naive formulation")
    parser.add_argument("--seeds", type=seeds_of, default=[1, 2, 3, 4, 5], help="1-5 or 1,3,7")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write the table between the marks of a page")
    options = parser.parse_args(arguments)
    if options.report is not None:
        try:
            read_page(options.report, MARK)
        except SnapshotError as error:
            parser.error(str(error))
    return options


def seeds_of(text: str) -> list[int]:
    """Seeds from text like `1-5` or `1,3,7-9`."""
    seeds: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if match is None:
            raise argparse.ArgumentTypeError(f"{text!r}: give for instance 1-5 or 1,3,7")
        seeds += range(int(match[1]), int(match[2] or match[1]) + 1)
    return seeds


def _engine(engine: str, gap: float) -> str:
    """The name under which an engine stops at a gap; known from now on."""
    if not gap:
        return engine
    name = f"{engine}-to-{gap:g}"
    register(name, partial(_allocate, engine, gap))
    return name


def _allocate(engine: str, gap: float, snapshot: Snapshot, budget: float, seed: int) -> Decision:
    return allocate(snapshot, time_limit=budget, engine=engine, seed=seed, gap=gap)


def _alone(bar: BarDoc, seeds: Sequence[int]) -> tuple[list[str], int]:
    """The row of a bar, and how many of its answers break a rule; in a process of its own, so that its memory is its own."""
    with ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_measured_row, bar, seeds).result()


def _measured_row(bar: BarDoc, seeds: Sequence[int]) -> tuple[list[str], int]:
    runs = _runs(Catalogue.open(), bar.instance, _engine(bar.engine, bar.ask), bar.budget, seeds)
    shared_process().close()  # it counts among the children once it has ended
    return row_of(bar, runs, _peak_mebibytes()), sum(bool(run.violations) for run in runs)


def _runs(catalogue: Catalogue, instance: str, engine: str, budget: float, seeds: Sequence[int]) -> list[Run]:
    cases = [Case(instance=catalogue.instance(instance, seed), engine=engine, budget=budget) for seed in seeds]
    return run_cases(cases, refine=False, report=lambda run: print(run_line(run), file=sys.stderr, flush=True))


def call_seconds(run: Run) -> float:
    """Wall clock of the call alone: without reading the snapshot and writing the decision."""
    return run.seconds - run.steps.get("decode", 0.0) - run.steps.get("encode", 0.0)


def row_of(bar: BarDoc, runs: Sequence[Run], mebibytes: int) -> list[str]:
    """The cells of a bar. A gap is proven by the run itself."""
    seconds, cpu = [call_seconds(run) for run in runs], [run.cpu_seconds for run in runs]
    gaps = [run.gap_to(run.bound) for run in runs]
    proven = [gap for gap in gaps if gap is not None]
    kept = {
        "slow": median(seconds) <= bar.seconds and max(seconds) <= (bar.worst or max(seconds)),
        "gap": bar.gap is None or (len(proven) == len(gaps) and max(proven) <= bar.gap),
        "memory": bar.mebibytes is None or mebibytes <= bar.mebibytes,
        "rules": not any(run.violations for run in runs),
    }
    asked = f"{bar.seconds:g}" + (f", worst {bar.worst:g}" if bar.worst else "")
    return [
        bar.about, *_median_and_worst(seconds), asked, *_median_and_worst(cpu),
        "-" if len(proven) < len(gaps) else f"{max(proven):.3%}", "-" if bar.gap is None else f"{bar.gap:.1%}",
        f"{mebibytes:,}" if bar.mebibytes else "-", str(len(runs)),
        "yes" if all(kept.values()) else "no: " + ", ".join(name for name, good in kept.items() if not good),
    ]  # fmt: skip


def _naive_row(doc: NaiveDoc, catalogue: Catalogue, seeds: Sequence[int]) -> list[str]:
    """How many times as long the naive formulation takes, in CPU time; what is cut is at least that."""
    register("naive-to-gap", partial(solve_naive, gap=doc.gap))
    ours = _runs(catalogue, doc.instance, _engine("portfolio", doc.gap), doc.budget, seeds)
    naive = _runs(catalogue, doc.instance, "naive-to-gap", doc.budget, seeds)
    ratio = median(run.cpu_seconds for run in naive) / max(0.01, median(run.cpu_seconds for run in ours))
    cut = sum((run.gap_to(run.bound) or doc.gap + 1) > doc.gap for run in naive)
    return [
        f"{doc.about}: {ratio:.0f} times our CPU time ({cut} cut)", *_median_and_worst([call_seconds(run) for run in naive]),
        f"{doc.times:g} times", *_median_and_worst([run.cpu_seconds for run in naive]), "-", f"{doc.gap:.1%}", "-",
        str(len(naive)), "yes" if ratio >= doc.times else "no",
    ]  # fmt: skip


def _median_and_worst(values: Iterable[float]) -> tuple[str, str]:
    known = list(values)
    return f"{median(known):.2f}", f"{max(known):.2f}"


def _peak_mebibytes() -> int:
    """The most that this process has held so far, and beside it the largest of its children that have ended."""
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(resource.getrusage(kind).ru_maxrss for kind in kinds) // 1024


def _measured() -> str:
    load = Path("/proc/loadavg")
    busy = f" Load average at the end {load.read_text().split()[0]}." if load.exists() else ""
    return f"Measured on {facts_line(machine_facts())}{busy}"
