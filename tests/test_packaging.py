"""The distribution contains what the tree contains, and no name of ours shadows a user's."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def packages_in_tree() -> set[str]:
    """Dotted names of every folder with an __init__.py under allocator/ (the link left out) and models/."""
    found = set()
    for top, prefix in ((ROOT / "allocator", "allocator"), (ROOT / "models", "allocator.models")):
        for init in top.rglob("__init__.py"):
            inside = init.parent.relative_to(top).parts
            if prefix == "allocator" and inside[:1] == ("models",):
                continue
            found.add(".".join((prefix, *inside)))
    return found


def test_every_package_of_the_tree_is_in_the_distribution() -> None:
    assert set(PROJECT["tool"]["setuptools"]["packages"]) == packages_in_tree()


def test_models_is_reached_by_a_link_in_the_checkout() -> None:
    link = ROOT / "allocator" / "models"
    assert link.is_symlink()
    assert link.readlink().as_posix() == "../models"


def test_a_models_folder_of_the_user_is_not_imported(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "__init__.py").write_text('raise RuntimeError("the models folder of the user was imported")\n')
    code = "import allocator.models.greedy, allocator.models.cpsat, allocator.cli"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_dependencies_have_lower_bounds_and_no_caps() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    wanted = PROJECT["project"]["dependencies"] + [line for lines in extras.values() for line in lines]
    for line in wanted:
        assert re.fullmatch(r"[a-z0-9-]+>=[0-9.]+|gpu-epoch-allocator\[[a-z]+(,[a-z]+)*\]", line), line


def test_the_lock_file_pins_exactly_and_names_no_host() -> None:
    lines = (ROOT / ".ci" / "requirements.lock").read_text(encoding="utf-8").splitlines()
    pinned = [line for line in lines if line and not line.startswith("#")]
    for line in pinned:
        assert re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+", line), line
    names = {line.split("==")[0].lower().replace("_", "-") for line in pinned}
    for line in PROJECT["project"]["dependencies"]:
        assert line.split(">=")[0] in names, line


def test_the_package_is_typed() -> None:
    assert (ROOT / "allocator" / "py.typed").exists()
    assert (ROOT / "models" / "py.typed").exists()


def test_the_command_is_installed() -> None:
    (command,) = [entry for entry in metadata.entry_points(group="console_scripts") if entry.name == "allocator"]
    assert command.value == "allocator.cli.main:main"


def test_top_level_is_as_documented() -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    names = {line.split("/")[0] for line in tracked if line}
    folders = {"allocator", "models", "instances", "benchmarks", "tests", "docs"}
    files = {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md", "Makefile"}
    assert {name for name in names if not name.startswith(".")} <= folders | files
