"""Running Slurm's commands: with a time limit, and so that none outlives the dispatcher."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache

from allocator.dispatch.launcher import LauncherError

logger = logging.getLogger(__name__)

TIMEOUT = 30.0
"""Seconds after which a command is given up: longer than Slurm's own message timeout."""


class Commands:
    """Runs commands. A dispatcher that is killed takes its command with it: an orphan could release a job after the next
    dispatcher has taken that order back."""

    def __init__(self, timeout: float = TIMEOUT) -> None:
        self._timeout = timeout

    def read(self, *command: str) -> str:
        """What a command prints.

        Raises
        ------
        LauncherError
            Where it fails, is not installed, or takes too long.
        """
        done = self._run(command, None)
        if done.returncode:
            raise LauncherError(f"{' '.join(command)}: {_last_line(done)}; is slurmctld up? see `scontrol ping`")
        return done.stdout

    def attempt(self, *command: str) -> str | None:
        """What a command prints; None where it fails, which is said in the log only."""
        done = self._run(command, None)
        if done.returncode:
            logger.debug("%s: %s", " ".join(command), _last_line(done))
            return None
        return done.stdout

    def feed(self, lines: Sequence[str]) -> None:
        """Have one `scontrol` carry out many lines. A line that fails does not keep back the others: look at the effect."""
        if not lines:
            return
        done = self._run(("scontrol",), "\n".join(lines) + "\n")
        for problem in filter(None, done.stderr.splitlines()):
            logger.info("scontrol: %s", problem)
        if "Unable to contact slurm controller" in done.stderr:
            raise LauncherError(f"scontrol: {_last_line(done)}; is slurmctld up?")

    def _run(self, command: Sequence[str], text: str | None) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {"SLURM_TIME_FORMAT": "standard", "LC_ALL": "C.UTF-8"}
        if shutil.which(command[0]) is None:
            raise LauncherError(f"{command[0]} is not installed: install Slurm's client commands on this host")
        try:
            return subprocess.run(
                [*_leash(), *command],
                env=environment,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=self._timeout,
                check=False,
                input=text or "",
                process_group=0,  # Ctrl-C is for the dispatcher, which ends after the epoch, not for its command
            )
        except subprocess.TimeoutExpired as error:
            raise LauncherError(f"{' '.join(command[:3])} took more than {self._timeout:g} s: is slurmctld up?") from error


@cache
def _leash() -> tuple[str, ...]:
    """What makes a command die with the dispatcher."""
    if shutil.which("setpriv") is None:
        logger.warning("setpriv (util-linux) is missing: a command may outlive a dispatcher that is killed; install it")
        return ()
    return ("setpriv", "--pdeathsig", "KILL")


def _last_line(done: subprocess.CompletedProcess[str]) -> str:
    lines = (done.stderr or done.stdout).strip().splitlines()
    return lines[-1] if lines else f"exit status {done.returncode}"
