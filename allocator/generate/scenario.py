"""Constructed scenarios: the research organisation, and what happens to it, from a recipe in TOML.

A recipe has a `title`, the parameters of the organisation in `[organisation]` (see `TraceParams`; `background = false` leaves
its jobs out), and any number of events:

`[[jobs]]`
    `count` jobs (default 1) of `gpus` GPUs from `at` on, `every` seconds apart; `class`, `project` and `user` (its place in
    the project) say whose they are; `work` is how long they take, `fails_after` after how much of it they die; `chain = true`
    lets each begin after the one before; `required` names a topology level, `pool` a pool, `gpus_per_task` their shape.
`[[outages]]`
    `part` of the nodes of a pool, or of one `domain` of it, down from `at` for `lasts`.
`[[maintenance]]`
    The nodes of a pool or `domain`, `batch` at a time (default: all), each for `lasts`, the first at `at`; announced
    `notice` before; `drain = false` lets work that ends in time start until then.
`[[revisions]]`
    New `shares` by path in the budget tree from `at` on.

Moments and spans are written as `3d6h`, counted from the start of the trace.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from allocator.domain.trace import Trace
from allocator.generate.events import Events, JobEvent, MaintenanceEvent, OutageEvent, RevisionEvent, happen
from allocator.generate.files import read_text, refuse
from allocator.generate.organisation_trace import TraceParams, generate_trace

_EVENTS = {"jobs": JobEvent, "outages": OutageEvent, "maintenance": MaintenanceEvent, "revisions": RevisionEvent}
_RENAMED = {"class": "job_class"}


def scenarios() -> dict[str, str]:
    """The shipped recipes: name and title."""
    folder = resources.files("allocator.generate.scenarios")
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".toml")), key=lambda file: file.name)
    return {
        file.name.removesuffix(".toml").replace("_", "-"): str(tomllib.loads(file.read_text("utf-8"))["title"])
        for file in files
    }


def generate_scenario(name: str, given: Mapping[str, Any] | None = None) -> Trace:
    """The trace of a shipped scenario, or of the recipe in a file.

    Parameters
    ----------
    given
        Parameters of the organisation that replace those of the recipe.

    Raises
    ------
    SnapshotError
        If there is no such scenario, or the recipe cannot be carried out on this organisation.
    """
    recipe = _load(name)
    organisation = {**recipe.pop("organisation", {}), **(given or {})}
    title, background = str(recipe.pop("title", name)), organisation.pop("background", True)
    events = Events(**{section: _events(name, section, recipe.pop(section, [])) for section in _EVENTS})
    if recipe:
        raise refuse(name, f"unknown parts {', '.join(recipe)}", f"valid are title, organisation, {', '.join(_EVENTS)}")
    params: TraceParams = _made(name, TraceParams, organisation)
    trace = generate_trace(params)
    if not background:
        trace = replace(trace, jobs=(), notes=())
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence(params.seed, spawn_key=(9,))))
    trace = happen(trace, events, rng)
    return replace(trace, name=title, notes=(f"scenario {name}: {title}", *trace.notes))


def _load(name: str) -> dict[str, Any]:
    """The recipe of that name, or in that file."""
    if name.endswith(".toml"):
        text = read_text(Path(name))
    elif name in (known := scenarios()):
        file = resources.files("allocator.generate.scenarios") / f"{name.replace('-', '_')}.toml"
        text = file.read_text("utf-8")
    else:
        raise refuse("scenario", f"no scenario is called {name!r}", f"give a .toml file, or one of {', '.join(known)}")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise refuse(name, f"is no TOML ({error})", "correct the recipe") from error


def _events(name: str, section: str, values: list[dict[str, Any]]) -> tuple[Any, ...]:
    return tuple(_made(f"{name}, {section}[{at}]", _EVENTS[section], value) for at, value in enumerate(values))


def _made(where: str, kind: type[Any], value: Mapping[str, Any]) -> Any:
    """An object of a table of the recipe; what does not belong there is named."""
    try:
        return kind(**{_RENAMED.get(key, key): item for key, item in value.items()})
    except TypeError as error:
        what = str(error).partition("() ")[2] or str(error)
        raise refuse(where, what, f"valid are {', '.join(kind.__dataclass_fields__)}") from error
