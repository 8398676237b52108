"""What is played: policies at several loads, one setting at a time, and real logs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from allocator.whatif import Scenario, read_scenario

OURS = "budgets_greedy"
BASELINES = ("priority_optout", "priority_classes", "partitions", "fair_tree", "drf", "fifo_backfill")
LOADS = (1.06, 1.2, 1.5)
USUAL_LOAD = 1.2

FIRST_OF_CALIBRATION = 101
"""Settings are tried on seeds from here on, and reported on those from 1 on."""

SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "horizon-1h": {"policy": {"horizon": "1h"}},
    "horizon-8h": {"policy": {"horizon": "8h"}},
    "cap-4h": {"policy": {"protection_cap": "4h"}},
    "half-life-2d": {"policy": {"half_life": "2d"}},
    "lost-work-3": {"policy": {"weights": {"lost_work": 3.0}}},
    "unfairness-4": {"policy": {"weights": {"unfairness": 4.0}}},
    "reserve-1_2": {"policy": {"reserve_from": 0.5}},
    "tick-60s": {"replay": {"tick": "60s"}},
    "evals-15min": {"jobs": [{"where": {"class": "eval"}, "set": {"min_runtime": "15m"}}]},
}
"""One setting at a time, everything else as it is by default; the last one is of what users declare."""

CONFIRMED = ("evals-15min",)
"""What looked worth it there, and is played on the seeds of the tables as well."""

_CLUSTER_04 = {"from": "elasticflow_itp_2021.csv.gz", "tenants": "cluster04", "gpus": 1024}
_WITH_GANGS = {**_CLUSTER_04, "on_top": "acme_kalos_completed_training.csv", "days": "42:49"}

LOGS: Mapping[str, tuple[str, str, Mapping[str, Any]]] = {
    "month": (
        "A month of a research organisation on 1,792 GPUs",
        "All 28 days of a synthetic log with 75,004 jobs, in three pools of 1,024, 512 and 256 GPUs.",
        {"from": "synthetic_research_org_28d.csv.gz"},
    ),
    "elasticflow": (
        "A production cluster of 2021 (ElasticFlow, cluster 04) on 1,024 GPUs",
        "Days 14 to 20 of the log. It knows one tenant, so that there is nothing to share out.",
        {**_CLUSTER_04, "days": "14:21"},
    ),
    "elasticflow-kalos": (
        "The same cluster with the large gangs of another (Kalos, 2023) on top",
        "Days 42 to 48 of both logs. The cluster and the gangs are the tenants.",
        _WITH_GANGS,
    ),
    "elasticflow-kalos-1.2": (
        "The same with more of everything, to an offered load of 1.2",
        "Days 42 to 48 of both logs, jobs repeated on other days until the load is met.",
        {**_WITH_GANGS, "load": USUAL_LOAD},
    ),
    "philly": (
        "Philly, 2017, its virtual clusters as budgets, on 512 GPUs",
        "Days 51 to 64 of the log.",
        {"from": "philly_2017.csv.gz", "gpus": 512, "days": "51:65"},
    ),
}
"""Heading, what to know of it, and recipe of logs: one of a synthetic organisation, which is large, and real ones."""

_FILES = ("from", "on_top")


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much is played: an organisation of so many GPUs in one pool or three, so many days, and how many seeds of it.
    There are many settings, so that they may get fewer days."""

    gpus: int = 256
    pools: int = 3
    days: int = 7
    seeds: int = 3
    settings_days: int = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """Variants that belong in one table.

    Attributes
    ----------
    about
        What a reader has to know of the figures.
    rivals
        Whether the variants are other policies; else they are other settings of ours.
    """

    name: str
    heading: str
    about: str
    rivals: bool
    scenario: Scenario


def studies(size: Size, logs: Path | None) -> Iterator[Study]:
    """All studies. `logs`: the folder of the job logs; None: they are left out."""
    for load in LOADS:
        yield _policies(size, load)
    if logs is not None:
        yield from (_log(name, logs) for name in LOGS)
    yield _settings(size)
    yield _confirmed(size)


def _policies(size: Size, load: float) -> Study:
    seeds = f"Seeds 1 to {size.seeds}, node failures on."
    about = f"{seeds} A quarter of the users keep idle sessions where a policy lets them."
    return Study(
        name=f"load-{load}",
        heading=f"A research organisation at an offered load of {load}",
        about=about,
        rivals=True,
        scenario=_scenario(f"load-{load}", {"generate": _organisation(size, load)}, _rivals(), range(1, size.seeds + 1)),
    )


def _settings(size: Size) -> Study:
    seeds = range(FIRST_OF_CALIBRATION, FIRST_OF_CALIBRATION + size.seeds)
    size = replace(size, days=size.settings_days)
    days = f"{size.days} day{'s' * (size.days > 1)}"
    variants = [{"name": "defaults"}, *({"name": name, **edits} for name, edits in SETTINGS.items())]
    return Study(
        name="settings",
        heading=f"One setting at a time, at an offered load of {USUAL_LOAD}",
        about=f"`{OURS}` for {days} of seeds {seeds[0]} to {seeds[-1]}, which the tables above have not seen. In `evals-15min` "
        "evals declare a min runtime of 15 minutes instead of none, so that they are charged and may use the express lane, and "
        "what they ask for counts as owed; all others are settings of the policy or of the replay.",
        rivals=False,
        scenario=_scenario("settings", {"generate": _organisation(size, USUAL_LOAD)}, variants, seeds),
    )


def _confirmed(size: Size) -> Study:
    seeds = range(1, size.seeds + 1)
    ours = {"policy": OURS}
    variants = [{"name": "defaults", "replay": ours}, *({"name": name, "replay": ours, **SETTINGS[name]} for name in CONFIRMED)]
    return Study(
        name="confirmed",
        heading=f"What looked worth it, on other seeds, at an offered load of {USUAL_LOAD}",
        about=f"The organisation of the tables at that load, seeds 1 to {size.seeds}.",
        rivals=False,
        scenario=_scenario("confirmed", {"generate": _organisation(size, USUAL_LOAD)}, variants, seeds),
    )


def _log(name: str, logs: Path) -> Study:
    heading, about, recipe = LOGS[name]
    recipe = {key: str(logs / value) if key in _FILES else value for key, value in recipe.items()}
    about += (
        " What the log does not say is taken [as for any log](howto/traces.md): no failures, nobody who keeps idle sessions."
    )
    scenario = _scenario(name, {"generate": recipe}, _rivals(), ())
    return Study(name=name, heading=heading, about=about, rivals=True, scenario=scenario)


def _organisation(size: Size, load: float) -> dict[str, Any]:
    return {"gpus": size.gpus, "days": str(size.days), "pools": size.pools, "load": load}


def _rivals() -> list[dict[str, Any]]:
    return [{"name": policy, "replay": {"policy": policy}} for policy in (OURS, *BASELINES)]


def _scenario(name: str, base: Mapping[str, Any], variants: Sequence[Mapping[str, Any]], seeds: Sequence[int]) -> Scenario:
    """A scenario whose first variant is what the others are compared with."""
    whole: dict[str, Any] = {"title": name, "base": base, "baseline": variants[0]["name"], "variants": list(variants)}
    if seeds:
        whole |= {"seeds": list(seeds), "draw": "generator"}
    return read_scenario(whole, Path(), name)
