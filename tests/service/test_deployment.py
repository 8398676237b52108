"""What operators copy: the units of systemd, the dashboard and the alarms name only what there is."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from typer.main import get_command

from allocator.cli import dispatch, serve
from tests.service.conftest import READ, Caller
from tests.test_docs import DOCS

UNITS = sorted((DOCS / "examples").glob("*.service"))
PROGRAM = "/opt/allocator/bin/allocator"
COMMANDS = {"serve": get_command(serve.app), "dispatch slurm": get_command(dispatch.app).commands["slurm"]}  # type: ignore[attr-defined]


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_systemd_takes_the_units(unit: Path, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed: the units are not verified")
    (tmp_path / unit.name).write_text(unit.read_text().replace(PROGRAM, "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", tmp_path / unit.name], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_the_units_give_options_that_there_are(unit: Path) -> None:
    text = unit.read_text().replace("\\\n", " ")
    (line,) = re.findall(rf"ExecStart={PROGRAM} (.*)", text)
    (command,) = [command for name, command in COMMANDS.items() if line.startswith(name)]
    known = {option for parameter in command.params for option in parameter.opts}
    given = re.findall(r"(?<!\S)--?[a-z][a-z-]*", line)
    assert given
    assert set(given) <= known


FACTS = {"rung": "exact", "solver_status": "optimal", "gap": 0.0, "steps": {}, "starts": 1, "contract_broken": 0, "waiting": 0}


def expressions() -> Iterator[str]:
    """Everything that is asked of Prometheus in dashboard and how-to."""
    board = json.loads((DOCS / "examples" / "grafana-dashboard.json").read_text())
    yield from (target["expr"] for panel in board["panels"] for target in panel.get("targets", []))
    yield from re.findall(r"`([^`]*\ballocator_[^`]*)`", (DOCS / "howto" / "service.md").read_text().replace("\\|", "|"))


def test_dashboard_and_alarms_ask_for_metrics_that_there_are(caller: Caller, small: bytes) -> None:
    assert caller.post("decisions", small, allocator_time_limit="5").status_code == 200
    assert caller.post("decisions", b"{").status_code == 422
    caller.service.metrics.replaced("crash")
    caller.service.metrics.decided({**FACTS, "preemptions": {"share": 1}})
    page = caller.get("/metrics", READ).text
    samples = {item.name: set(item.labels) for family in text_string_to_metric_families(page) for item in family.samples}
    asked = list(expressions())
    assert len(asked) > 15
    for expression in asked:
        names = set(re.findall(r"\ballocator_\w+", expression))
        assert names, expression
        assert names <= samples.keys(), expression
        labels = re.findall(r"(\w+)=~?\"", expression) + re.findall(r"\w+", " ".join(re.findall(r"by \(([^)]*)\)", expression)))
        assert set(labels) <= set.union(*(samples[name] for name in names)), expression
