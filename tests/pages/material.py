"""Results of small replays to report on: a few jobs of several allocations, stops, a dead node and a drain, in three days."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from allocator.domain.trace import Maintenance, Outage, Trace
from allocator.replay import ReplayOptions, Simulator, write_results
from tests.builders import HOUR, budget
from tests.replay.play import START, Told, job, trace

DAYS = 3
EVIL = "</script><b>evil\x1b[31m\u202e"
"""The name of a trace, a class and an allocation by somebody who means no good."""

ALLOCATIONS = ("vision", "speech", "robots", EVIL, *(f"small{number}" for number in range(6)))
"""More than have a letter."""


def sample() -> Trace:
    """Every six hours two gangs and a debug job, of one allocation after the other."""
    jobs = []
    for place in range(DAYS * 4):
        at, owner = place * 6 * HOUR, ALLOCATIONS[place % len(ALLOCATIONS)]
        jobs.append(job(f"gang{place:02d}", at, work=9 * HOUR, tasks=2, allocation=owner, job_class="train", min_runtime=HOUR))
        jobs.append(job(f"next{place:02d}", at + 60, work=5 * HOUR, allocation="vision", job_class=EVIL, min_runtime=HOUR))
        jobs.append(job(f"look{place:02d}", at + 90, work=600, gpus_per_task=1, allocation="speech", job_class="debug"))
    return trace(
        *jobs,
        name=f"sample {EVIL}",
        hours=24 * DAYS,
        num_nodes=6,
        per_rack=3,
        budgets=tuple(budget(name) for name in ALLOCATIONS),
        outages=(Outage(node="n6", start=START + 20 * HOUR, end=START + 30 * HOUR),),
        maintenance=(Maintenance(node="n5", announced=START + 2 * HOUR, deadline=START + 9 * HOUR, end=START + 40 * HOUR),),
    )


def write_replay(folder: Path, *, stops: dict[int, list[str]] | None = None, what: Trace | None = None) -> Path:
    """Play the sample first come first served, with some stops, and write the results."""
    simulator = Simulator(what or sample(), Told(stops=stops or {}, back=HOUR), ReplayOptions(tick=60))
    simulator.run()
    write_results(simulator, folder)
    return folder


def write_study(folder: Path, cells: dict[str, Path]) -> Path:
    """A what-if study whose cells are results that were written before: by variant, the first is the base."""
    (folder / "cells").mkdir(parents=True)
    for variant, results in cells.items():
        (folder / "cells" / f"{variant}-s1").symlink_to(results, target_is_directory=True)
    (folder / "whatif.json").write_text(json.dumps(study_document(list(cells))), encoding="utf-8")
    return folder


def study_document(variants: list[str]) -> dict[str, Any]:
    """The document of a study of two metrics; the second one is unknown here."""
    rows = [
        {
            "metric": metric, "definition": f"what {metric} is", "unit": unit, "variant": variant,
            "value": value + 0.1 * place, "low": value - 0.1, "high": value + 0.2,
            "difference": 0.1 * place if place else None,
            "difference_low": 0.05 if place else None, "difference_high": 0.15 if place else None,
        } | ({"better": "lower"} if metric == "cost" else {})
        for metric, unit, value in (("occupancy", "", 0.5), ("wait_p90", "s", 7200.0), ("cost", "EUR", 12.0))
        for place, variant in enumerate(variants)
    ]  # fmt: skip
    return {
        "name": "rack",
        "scenario": "Buy a rack",
        "base": variants[0],
        "variants": [{"name": name, "title": f"The {name}", "edits": {}} for name in variants],
        "seeds": [1, 2],
        "cells": [{"key": f"{name}-s{seed}", "variant": name, "seed": seed} for name in variants for seed in (1, 2)],
        "comparison": rows,
        "projects": [_told("vision", "", metric, unit, *row) for metric, unit in PROJECT for row in enumerate(variants)],
        "pools": [
            _told(allocation, "h100", metric, "", *row)
            for allocation in ("", "vision") for metric in ("occupancy", "delivered") for row in enumerate(variants)
            if not (allocation and metric == "occupancy")
        ],
        "sentences": ["A rack more shortens waits."],
    }  # fmt: skip


PROJECT = (("delivered", ""), ("useful_per_day", "GPU-h/d"), ("wait_p50", "s"))


def _told(allocation: str, pool: str, metric: str, unit: str, place: int, variant: str) -> dict[str, Any]:
    """A row of a project or pool: the variants differ by 0.1, and the interval says so."""
    found: dict[str, Any] = {"metric": metric, "unit": unit, "variant": variant, "value": 0.5 + 0.1 * place}
    found |= {"low": None, "high": None, "difference": 0.1 if place else None}
    found |= {"difference_low": 0.05 if place else None, "difference_high": 0.15 if place else None}
    return found | ({"allocation": allocation} if allocation else {}) | ({"pool": pool} if pool else {})


def quiet() -> Trace:
    """A trace in which nothing is submitted."""
    return replace(trace(hours=2, num_nodes=1), name="quiet")
