"""The summary of a replay: every metric with its interval and definition, as JSON and as a table."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from allocator.replay.bootstrap import interval, value
from allocator.replay.evidence import Evidence, evidence_of
from allocator.replay.metrics import METRICS, wait_table
from allocator.replay.simulator import Simulator
from allocator.replay.tables import frames_of, write_frames

if TYPE_CHECKING:
    import pandas as pd

SUMMARY = "summary.json"
TIMING = "timing.json"
"""What depends on the machine stands apart, so that everything else is the same bytes each time."""


WITHIN = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
"""Seconds: the timing counts the decisions that took no longer."""


def write_results(simulator: Simulator, folder: Path) -> dict[str, Any]:
    """Write all tables, the summary and the timing of a replay that has come to its end; returns the summary."""
    frames = frames_of(simulator)
    write_frames(frames, folder)
    summary = summarise(simulator, frames)
    _write_json(folder / SUMMARY, summary)
    _write_json(folder / TIMING, timing(simulator))
    return summary


def summarise(simulator: Simulator, frames: Mapping[str, pd.DataFrame]) -> dict[str, Any]:
    """All that is to be said of a replay in numbers."""
    evidence = evidence_of(frames, simulator.trace.start, simulator.end)
    jobs = frames["jobs"]
    return {
        "trace": simulator.trace.name,
        "policy": simulator.policy.name,
        "start": simulator.trace.start,
        "end": simulator.end,
        "tick": simulator.options.tick,
        "drift": simulator.options.drift,
        "gpus": dict(simulator.world.fleet.installed),
        "jobs": dict(sorted(Counter(jobs.outcome).items())),
        "held_back": len(simulator.world.held_back),
        "decisions": len(simulator.epochs),
        "rungs": dict(sorted(Counter(row.rung for row in simulator.epochs).items())),
        "metrics": _measured(evidence),
        "waits": wait_table(evidence),
        "definitions": {metric.name: metric.definition for metric in METRICS},
        "notes": list(simulator.trace.notes),
    }


def timing(simulator: Simulator) -> dict[str, Any]:
    """Seconds of a decision on this machine."""
    seconds = np.array(simulator.seconds or [0.0])
    median, high = np.quantile(seconds, [0.5, 0.99])
    within = np.searchsorted(np.sort(simulator.seconds), WITHIN, side="right")
    return {
        "decisions": len(simulator.seconds),
        "total_s": float(seconds.sum()),
        "median_s": float(median),
        "p99_s": float(high),
        "max_s": float(seconds.max()),
        "within": [{"s": bound, "decisions": int(count)} for bound, count in zip(WITHIN, within, strict=True)],
    }


def read_summary(folder: Path) -> dict[str, Any]:
    """The summary of a replay that was written there."""
    found: dict[str, Any] = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
    return found


def read_timing(folder: Path) -> dict[str, Any] | None:
    """The timing of a replay that was written there; None if it was not kept."""
    path = folder / TIMING
    if not path.exists():
        return None
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def _measured(evidence: Evidence) -> dict[str, dict[str, Any]]:
    found = {}
    for metric in METRICS:
        low, high = interval(metric, evidence)
        found[metric.name] = {"value": value(metric, evidence), "low": low, "high": high, "unit": metric.unit}
    return found


def _write_json(path: Path, document: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
