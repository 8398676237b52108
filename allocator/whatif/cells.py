"""Cells: one variant played for one seed, kept in a folder that says what it was made from."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import allocator
from allocator.domain import AllocatorError
from allocator.domain.trace import Trace
from allocator.replay import ReplayOptions, SchedulingPolicy, Simulator, make_policy, write_results
from allocator.whatif.edits import edited
from allocator.whatif.errors import WhatIfError
from allocator.whatif.scenario import Variant
from allocator.whatif.scenario_doc import ReplayDoc
from allocator.wire import encode_trace, load_trace

CELLS = "cells"
TRACES = "traces"
MADE_FROM = "cell.json"
"""In the folder of a cell: the digest of what it was made from."""

_POLICY, _USUAL = "budgets_greedy", ReplayOptions()
"""Those of `allocator replay`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What one worker gets: small, so that it can be sent anywhere; the trace of the seed lies in the folder.

    Attributes
    ----------
    replay
        The options for all variants; those of the variant come on top.
    """

    variant: Variant
    seed: int
    replay: ReplayDoc

    @property
    def key(self) -> str:
        """The name of its folder."""
        return f"{self.variant.name}-s{self.seed}"

    @property
    def settings(self) -> dict[str, Any]:
        """Policy, its settings, and the options of the replay: only what is given, the variant's own first."""
        return {**_given(self.replay), **_given(self.variant.edits.replay)}


def _given(doc: ReplayDoc) -> dict[str, Any]:
    fields = {name: getattr(doc, name) for name in ReplayDoc.__struct_fields__}
    return {name: value for name, value in fields.items() if value is not None}


def trace_file(folder: Path, seed: int) -> Path:
    """Where the trace of a seed lies before it is edited."""
    return folder / TRACES / f"s{seed}.json.gz"


def cell_folder(folder: Path, key: str) -> Path:
    """Where the results of a cell lie."""
    return folder / CELLS / key


def play_cell(cell: Cell, folder: Path) -> bool:
    """Play a cell, unless it was played before from exactly this; True where it was kept.

    The results appear at once or not at all: they are written to a folder of another name, which is then renamed.

    Raises
    ------
    WhatIfError
        If the replay breaks off.
    """
    try:
        trace = edited(load_trace(trace_file(folder, cell.seed)), cell.variant, cell.seed)
        digest = digest_of(trace, cell.settings)
        target = cell_folder(folder, cell.key)
        if _is_kept(target, digest):
            return True
        simulator = Simulator(trace, policy_of(cell.settings), options_of(cell.settings, trace.start))
        simulator.run()
        _put(target, simulator, digest)
    except AllocatorError as error:
        raise WhatIfError(f"{cell.key}: {error}") from error
    return False


def digest_of(trace: Trace, settings: Mapping[str, Any]) -> str:
    """What identifies a cell: the trace with all edits in it, the settings, and the version of the package."""
    whole = json.dumps({"version": allocator.__version__, "settings": settings}, sort_keys=True)
    return hashlib.sha256(whole.encode() + b"\n" + encode_trace(trace)).hexdigest()


def policy_of(settings: Mapping[str, Any]) -> SchedulingPolicy:
    """The policy of a cell. Raises `ReplayError` if there is none of that name or engine."""
    own = {name: settings[name] for name in ("engine", "time_limit", "gap") if name in settings}
    return make_policy(settings.get("policy", _POLICY), drift=_drift(settings), **own)


def options_of(settings: Mapping[str, Any], start: int) -> ReplayOptions:
    """How a cell is replayed. Raises `ReplayError` if a drift is shorter than a tick."""
    until = None if "until" not in settings else start + settings["until"]
    return ReplayOptions(tick=settings.get("tick", _USUAL.tick), drift=_drift(settings), until=until)


def _drift(settings: Mapping[str, Any]) -> int:
    """As it is given; else the usual, or one tick where that is longer."""
    return int(settings.get("drift", max(_USUAL.drift, settings.get("tick", _USUAL.tick))))


def made_from(target: Path) -> str | None:
    """The digest of what a cell that lies there was made from; None where there is no cell.

    Raises
    ------
    WhatIfError
        If the file that should say so is damaged.
    """
    file = target / MADE_FROM
    if not file.is_file():
        return None
    try:
        return str(json.loads(file.read_text(encoding="utf-8"))["digest"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise WhatIfError(f"{file} is damaged ({error!r})") from error


def _is_kept(target: Path, digest: str) -> bool:
    """Whether a whole cell of this digest lies there; the run has said which ones are damaged, and they are played anew."""
    try:
        return made_from(target) == digest
    except WhatIfError:
        return False


def _put(target: Path, simulator: Simulator, digest: str) -> None:
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        write_results(simulator, part)
        (part / MADE_FROM).write_text(json.dumps({"digest": digest}) + "\n", encoding="utf-8")
        if target.exists():
            shutil.rmtree(target)
        part.rename(target)
    finally:
        shutil.rmtree(part, ignore_errors=True)
