"""Slurm as a launcher: what it shows, and the orders it takes."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from allocator.dispatch.facts import Fabric, View
from allocator.dispatch.launcher import LauncherError, NotReadyError, StartOrder
from allocator.dispatch.slurm import accounts, nodes, text
from allocator.dispatch.slurm.commands import Commands
from allocator.dispatch.slurm.jobs import read_jobs
from allocator.domain import Allocation

logger = logging.getLogger(__name__)

REFRESH = 60.0
"""Seconds for which topology and accounts are taken as read: they cost half a second, and hardly change."""

_TREE = ("sacctmgr", "-nP", "list", "associations", "tree", "format=account,user,parentname,share,grptres")


class SlurmLauncher:
    """Drives the Slurm that the commands on this host speak to.

    Parameters
    ----------
    commands
        Runs them.
    read_accounts
        False where budgets come from a file.
    clock
        Seconds since the epoch.
    """

    def __init__(self, commands: Commands, *, read_accounts: bool = True, clock: Callable[[], float] = time.time) -> None:
        self._commands, self._read_accounts, self._clock = commands, read_accounts, clock
        self._slow: tuple[float, Fabric, tuple[Allocation, ...]] | None = None
        self._text_until = 0.0

    def view(self) -> View:
        """What Slurm shows now.

        Raises
        ------
        LauncherError
            Where Slurm does not answer, or shows what cannot be understood: nothing is concluded from half of it.
        NotReadyError
            Just after a restart of slurmctld, while nodes have not reported.
        """
        fabric, tree = self._slow_facts()
        now = int(self._clock())
        node_records, job_records = self._records()
        with _understanding("nodes"):
            if unknown := nodes.are_unknown(node_records):
                raise NotReadyError(f"slurmctld has not heard of {len(unknown)} nodes yet: {', '.join(unknown[:4])}")
            shown = nodes.read_nodes(node_records)
        with _understanding("jobs"):
            return View(now=now, jobs=read_jobs(job_records, now), nodes=shown, fabric=fabric, accounts=tree)

    def stop(self, jobs: Sequence[str]) -> None:
        """Requeue and hold; what may not be requeued is allowed to first. `Incomplete`: what has ended is not revived."""
        self._commands.feed([f"update JobId={job} Requeue=1" for job in jobs])
        self._commands.feed([f"requeuehold Incomplete {job}" for job in jobs])

    def place(self, orders: Sequence[StartOrder]) -> None:
        """Name exactly the nodes. The number of nodes goes along: fewer names than nodes would make Slurm add its own."""
        self._commands.feed([_placement(order) for order in orders])

    def release(self, jobs: Sequence[str]) -> None:
        """Release held jobs."""
        self._commands.feed([f"release {job}" for job in jobs])

    def hold(self, jobs: Sequence[str]) -> None:
        """Hold jobs: a held job never starts."""
        self._commands.feed([f"hold {job}" for job in jobs])

    def unplace(self, jobs: Sequence[str]) -> None:
        """Clear the nodes."""
        self._commands.feed([f"update JobId={job} ReqNodeList=" for job in jobs])

    def drain(self, names: Sequence[str], reason: str) -> None:
        """Drain nodes."""
        self._commands.read("scontrol", "update", f"NodeName={','.join(names)}", "State=DRAIN", f"Reason={reason}")

    def resume(self, names: Sequence[str]) -> None:
        """Take nodes back into service."""
        self._commands.read("scontrol", "update", f"NodeName={','.join(names)}", "State=RESUME")

    def say(self, texts: Mapping[str, str]) -> None:
        """The admin comment, which `scontrol show job` shows; the comment is the users' own, and they ask for things there."""
        self._commands.feed([f'update JobId={job} AdminComment="{text}"' for job, text in texts.items()])

    def _records(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Nodes and jobs, as JSON where this build of Slurm has it."""
        if self._has_passed(self._text_until):
            found = self._commands.attempt("sinfo", "--json"), self._commands.attempt("squeue", "--json")
            if found[0] is not None and found[1] is not None:
                return _list(found[0], "nodes"), _list(found[1], "jobs")
        shown = self._commands.read("scontrol", "-o", "show", "nodes"), self._commands.read("scontrol", "-o", "show", "jobs")
        if self._has_passed(self._text_until):
            logger.warning("squeue --json is not to be had: reading the text of scontrol instead, for %g s", REFRESH)
            self._text_until = self._clock() + REFRESH
        return text.node_records(shown[0]), text.job_records(shown[1])

    def _has_passed(self, instant: float) -> bool:
        """Whether an instant of the near future is over; one that is far off was set before the clock went back."""
        return not 0 < instant - self._clock() <= REFRESH

    def _slow_facts(self) -> tuple[Fabric, tuple[Allocation, ...]]:
        """Topology and accounts, read anew from time to time."""
        if self._slow is None or self._has_passed(self._slow[0] + REFRESH):
            with _understanding("the topology"):
                fabric = nodes.read_fabric(self._commands.attempt("scontrol", "show", "topology") or "")
            self._slow = self._clock(), fabric, self._accounts()
        return self._slow[1:]

    def _accounts(self) -> tuple[Allocation, ...]:
        if not self._read_accounts:
            return ()
        shown = self._commands.attempt(*_TREE)
        if shown is None and self._slow is not None:
            return self._slow[2]  # slurmdbd is away: the tree of a minute ago is the better guess
        with _understanding("associations"):
            return accounts.read_tree(shown or "")


@contextmanager
def _understanding(what: str) -> Iterator[None]:
    """Whatever does not look as Slurm's output does costs this epoch, and no more."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        problem = f"what Slurm shows of {what} cannot be read ({type(error).__name__}: {error})"
        raise LauncherError(f"{problem}: nothing is done; if it stays so, report it with the output of Slurm") from error


def _placement(order: StartOrder) -> str:
    number = len(order.nodes)
    split = f" TresPerNode=gres:gpu:{order.gpus_per_node}" if order.gpus_per_node else ""
    where = f"NumNodes={number}-{number} ReqNodeList={','.join(order.nodes)}"
    return f"update JobId={order.job} {where} StartTime=now Switches=0{split}"


def _list(shown: str, name: str) -> list[dict[str, Any]]:
    """The records under a name. An empty list would mean that all jobs are over: it is believed only without errors."""
    try:
        document = json.loads(shown)
        found, errors = document[name], document.get("errors")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise LauncherError(f"the JSON of Slurm has no list of {name}: {error}; is slurmctld up?") from error
    if errors or not isinstance(found, list) or not all(isinstance(record, dict) for record in found):
        raise LauncherError(f"the JSON of Slurm has no list of {name}: {errors or 'something else stands there'}")
    return found
