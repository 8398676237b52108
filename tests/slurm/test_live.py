"""What tests on a real Slurm wait for, told from logs as Slurm prints them."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from allocator.dispatch.slurm.history import read_history
from tests.slurm.cluster import SlurmCluster
from tests.slurm.live import Site

HEADER = "JobID|Account|User|QOS|Start|End|State|AllocTRES"
ENDED = "3|nlp|root|{qos}|1796016660|1796016661|COMPLETED|billing=1,cpu=1,gres/gpu:h100=8,gres/gpu=8,mem=1G,node=1"


class Accounts:
    """A cluster whose slurmdbd knows of one run that ended; whole or not yet."""

    def __init__(self, *, whole: bool) -> None:
        self.whole = whole
        self.folder = Path()

    def run(self, *command: str) -> str:
        """Without its QOS a run is found by the job's id alone, as real accounts have it."""
        shown = self.whole or "-j" in command
        rows = [ENDED.format(qos="normal" if self.whole else "Unknown")] if shown else []
        return "\n".join([HEADER, *rows, ""])


@pytest.mark.parametrize("whole", [False, True])
def test_a_run_is_accounted_when_the_log_of_all_runs_has_it(whole: bool) -> None:
    site = Site.__new__(Site)
    site.cluster = cast("SlurmCluster", Accounts(whole=whole))
    read = {row.job for row in read_history(site.sacct(), set(), {}).rows}
    assert site.accounted("3") == ("3" in read) == whole
