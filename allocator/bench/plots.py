"""Plots: time and gap against size, and the anytime profile. Needs matplotlib, the extra `plots`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from allocator.bench.runs import Run, best_bounds
from allocator.domain import Issue, SnapshotError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LEAST_GAP = 1e-6
"""Smaller gaps are drawn here, since a logarithm has no zero."""


def write_plots(runs: Sequence[Run], folder: Path) -> list[Path]:
    """Write the plots for which there are runs as SVG files.

    Raises
    ------
    SnapshotError
        If matplotlib is not installed.
    """
    try:
        import matplotlib as mpl
    except ImportError as error:
        remedy = "pip install 'gpu-epoch-allocator[plots]'"
        raise SnapshotError([Issue(path="--plot", problem="matplotlib is not installed", remedy=remedy)]) from error
    mpl.use("svg")
    folder.mkdir(parents=True, exist_ok=True)
    drawings: dict[str, Callable[[Axes, Sequence[Run]], None]] = {
        "time-by-size": _time_by_size,
        "gap-by-size": _gap_by_size,
    }
    if len({run.case.budget for run in runs}) > 1:
        drawings["anytime"] = _anytime
    return [_draw(folder / f"{name}.svg", draw, runs) for name, draw in drawings.items()]


def _draw(path: Path, draw: Callable[[Axes, Sequence[Run]], None], runs: Sequence[Run]) -> Path:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    draw(axes, runs)
    axes.grid(visible=True, which="both", alpha=0.3)
    axes.legend()
    figure.savefig(path, metadata={"Date": None})  # the same runs give the same file
    return path


def _time_by_size(axes: Axes, runs: Sequence[Run]) -> None:
    """Median seconds of the whole call by GPUs, one line for each engine, the slowest run as a whisker."""
    for engine, sizes in _by_engine_and_size(runs).items():
        middle = [median(run.seconds for run in own) for own in sizes.values()]
        worst = [max(run.seconds for run in own) - low for own, low in zip(sizes.values(), middle, strict=True)]
        axes.errorbar(list(sizes), middle, yerr=[[0.0] * len(worst), worst], marker="o", capsize=3, label=engine)
    axes.set(xscale="log", yscale="log", xlabel="GPUs", ylabel="seconds, whole call: median and worst")


def _gap_by_size(axes: Axes, runs: Sequence[Run]) -> None:
    """Gap to the best bound by GPUs, one line for each engine through the medians, every run a dot."""
    bounds = best_bounds(runs)
    for engine, sizes in _by_engine_and_size(runs).items():
        gaps = {gpus: [_shown(run, bounds) for run in own if run.key in bounds] for gpus, own in sizes.items()}
        known = {gpus: own for gpus, own in gaps.items() if own}
        (line,) = axes.plot(list(known), [median(own) for own in known.values()], label=engine)
        dots = [(gpus, gap) for gpus, own in known.items() for gap in own]
        axes.scatter([dot[0] for dot in dots], [dot[1] for dot in dots], s=12, color=line.get_color())
    axes.set(xscale="log", yscale="log", xlabel="GPUs", ylabel="gap to the best bound")


def _anytime(axes: Axes, runs: Sequence[Run]) -> None:
    """Mean gap to the best bound of any run by the budget of the call: what an engine is worth when time is short."""
    bounds = best_bounds(runs)
    for engine in dict.fromkeys(run.case.engine for run in runs):
        by_budget: dict[float, list[float]] = {}
        for run in runs:
            if run.case.engine == engine and run.key in bounds:
                by_budget.setdefault(run.case.budget, []).append(_shown(run, bounds))
        budgets = sorted(by_budget)
        axes.plot(budgets, [sum(by_budget[b]) / len(by_budget[b]) for b in budgets], marker="o", label=engine)
    axes.set(xscale="log", yscale="log", xlabel="budget of the call in seconds", ylabel="mean gap to the best bound")


def _by_engine_and_size(runs: Sequence[Run]) -> dict[str, dict[int, list[Run]]]:
    """Runs with the largest budget, by engine and number of GPUs in ascending order."""
    largest = max((run.case.budget for run in runs), default=0.0)
    found: dict[str, dict[int, list[Run]]] = {}
    for run in sorted(runs, key=lambda run: run.facts.gpus):
        if run.case.budget == largest:
            found.setdefault(run.case.engine, {}).setdefault(run.facts.gpus, []).append(run)
    return found


def _shown(run: Run, bounds: Mapping[tuple[str, int], int]) -> float:
    return max(LEAST_GAP, run.gap_to(bounds[run.key]) or 0.0)
