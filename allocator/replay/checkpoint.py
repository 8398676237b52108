"""Checkpoints of a replay: the whole simulator, so that what is split in two gives the same bytes as what is not."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

from allocator.domain.trace import Trace
from allocator.replay.errors import ReplayError
from allocator.replay.options import ReplayOptions
from allocator.replay.policy import SchedulingPolicy
from allocator.replay.product import Budgets
from allocator.replay.simulator import Simulator

FORMAT = "allocator replay 2"


def save(simulator: Simulator, path: Path) -> None:
    """Write a checkpoint, whole or not at all."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            pickle.dump(FORMAT, file)
            pickle.dump(simulator, file, protocol=pickle.HIGHEST_PROTOCOL)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def load(path: Path, trace: Trace, policy: SchedulingPolicy, options: ReplayOptions) -> Simulator:
    """Go on from a checkpoint. Only open files that this program wrote: they can run code.

    Raises
    ------
    ReplayError
        If the file is no checkpoint, or one of another trace, policy or tick.
    """
    try:
        with path.open("rb") as file:
            known = pickle.load(file) == FORMAT
            simulator = pickle.load(file) if known else None
    except OSError as error:
        raise ReplayError(f"{path} cannot be read ({error.strerror}): let this user read it") from error
    except Exception as error:  # a damaged file may raise whatever it likes
        raise ReplayError(f"{path} is no checkpoint of this version ({error}): delete it to begin anew") from error
    if not isinstance(simulator, Simulator):
        raise ReplayError(f"{path} is no checkpoint of this version: delete it to begin anew")
    wrong = [
        what
        for what, same in (
            ("trace", simulator.trace == trace),
            ("policy", _same_policy(simulator.policy, policy)),
            ("options", simulator.options == options),
        )
        if not same
    ]
    if wrong:
        raise ReplayError(f"{path} belongs to another {' and '.join(wrong)}: delete it to begin anew")
    return simulator


def _same_policy(one: SchedulingPolicy, other: SchedulingPolicy) -> bool:
    """Whether both decide alike: of our own, the settings too; a baseline may have learnt something since."""
    if isinstance(one, Budgets) or isinstance(other, Budgets):
        return one == other
    return type(one) is type(other) and one.name == other.name
