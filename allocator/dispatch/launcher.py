"""What a scheduler must be able to do to be driven. Slurm is one; others are added by implementing `Launcher`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from allocator.dispatch.facts import View
from allocator.domain import AllocatorError


class LauncherError(AllocatorError):
    """The scheduler did not answer, or refused. The epoch is given up; the next one begins with what is really there."""


class NotReadyError(LauncherError):
    """The scheduler has just been restarted and does not know its nodes yet: nothing may be concluded from what it shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartOrder:
    """Start a waiting job on exactly these nodes, with so many GPUs on each."""

    job: str
    nodes: tuple[str, ...]
    gpus_per_node: int


class Launcher(Protocol):
    """The scheduler. Every method may be called again with the same arguments without doing anything twice.

    None of them reports success: what took effect is read off the next `view`. All raise `LauncherError` where the scheduler
    as a whole does not answer.
    """

    def view(self) -> View:
        """What there is now."""
        ...

    def stop(self, jobs: Sequence[str]) -> None:
        """Stop running jobs and put them back into the queue, held. What has ended is never revived."""
        ...

    def place(self, orders: Sequence[StartOrder]) -> None:
        """Tell held jobs where they will start, without starting them."""
        ...

    def release(self, jobs: Sequence[str]) -> None:
        """Let jobs start that were told where."""
        ...

    def hold(self, jobs: Sequence[str]) -> None:
        """Keep jobs that have not started from doing so."""
        ...

    def unplace(self, jobs: Sequence[str]) -> None:
        """Forget where held jobs were to start. Only of jobs that are seen to be held: any other could start anywhere then."""
        ...

    def drain(self, nodes: Sequence[str], reason: str) -> None:
        """Let nothing start on nodes any more."""
        ...

    def resume(self, nodes: Sequence[str]) -> None:
        """Let work start on nodes again."""
        ...

    def say(self, texts: Mapping[str, str]) -> None:
        """Show the owners of jobs one line of text each; it takes the place of the last one."""
        ...
