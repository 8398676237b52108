"""The documentation is true: its commands run and print what is claimed, its links lead somewhere, its rules exist.

In a ```console block every line that starts with `$ ` is run, all blocks of a page in one folder; the lines below it are the
claimed output. Words have to agree, numbers may differ; a line `...` stands for any number of lines. A ```python block that is
followed by a ```text block is run and its output compared in the same way. `<!-- not run: why -->` before a block exempts it.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import jsonschema
import pytest

from allocator.domain import Reason
from allocator.models.cpsat.constraints import Constraints
from allocator.verify import RULES

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]
RUN_PAGES = [ROOT / "README.md", DOCS / "tutorial.md"]

_FENCE = re.compile(r"(<!-- not run: [^>]+ -->\n)?^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block that is to be run, and what it claims to print."""

    language: str
    text: str
    skipped: bool


def blocks_of(page: Path) -> list[Block]:
    return [Block(m[2], m[3], m[1] is not None) for m in _FENCE.finditer(page.read_text(encoding="utf-8"))]


def commands_of(text: str) -> Iterator[tuple[str, list[str]]]:
    """Each command of a console block with its claimed output; a trailing backslash continues the command."""
    command, claimed, open_line = "", list[str](), False
    for line in text.splitlines():
        if open_line:
            command, open_line = command + "\n" + line.removeprefix("> "), line.endswith("\\")
        elif line.startswith("$ "):
            if command:
                yield command, claimed
            command, claimed, open_line = line[2:], [], line.endswith("\\")
        else:
            claimed.append(line)
    if command:
        yield command, claimed


def loosely(line: str) -> str:
    """The words of a line: numbers, signs and the widths of columns do not count."""
    line = re.sub(r"\d[\d,.:]*", "#", line)
    return " ".join(re.sub(r"[-+]#", "#", re.sub(r"[─━═│┃|]+", " ", line)).split())


def check_output(claimed: list[str], printed: str, what: str) -> None:
    """Find the claimed lines in what was printed: directly one after the other, but for `...`."""
    rest = [loosely(line) for line in printed.splitlines() if loosely(line)]
    at, gap = 0, False
    for line in claimed:
        if line.strip() == "...":
            gap = True
            continue
        wanted = loosely(line)
        if not wanted:
            continue
        found = rest.index(wanted, at) if wanted in rest[at:] else -1
        assert found >= 0, f"{what}\nshould print {line!r} after line {at} of\n{printed}"
        assert gap or found == at, f"{what}\nprints more than is claimed before {line!r}:\n{printed}"
        at, gap = found + 1, False
    assert gap or not claimed or at == len(rest), f"{what}\nprints more than is claimed:\n{printed}"


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    env = {**os.environ, "PATH": path, "COLUMNS": "100", "NO_COLOR": "1"}
    return subprocess.run(
        command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize("page", RUN_PAGES, ids=lambda page: page.name)
def test_commands_print_what_is_claimed(page: Path, tmp_path: Path) -> None:
    shutil.copytree(DOCS / "examples", tmp_path / "docs" / "examples")
    for block in blocks_of(page):
        if block.language != "console" or block.skipped:
            continue
        for command, claimed in commands_of(block.text):
            done = run(["bash", "-o", "pipefail", "-c", command], tmp_path)
            ended = re.fullmatch(r"\[exit status (\d+)\]", claimed[-1]) if claimed else None
            assert done.returncode == (int(ended[1]) if ended else 0), f"$ {command}\n{done.stdout}"
            check_output(claimed[:-1] if ended else claimed, done.stdout, f"$ {command}")


@pytest.mark.parametrize("page", RUN_PAGES, ids=lambda page: page.name)
def test_python_examples_print_what_is_claimed(page: Path, tmp_path: Path) -> None:
    shutil.copytree(DOCS / "examples", tmp_path / "docs" / "examples")
    blocks = blocks_of(page)
    for block, following in pairwise(blocks):
        if block.language == "python" and following.language == "text":
            done = run([sys.executable, "-c", block.text], tmp_path)
            assert done.returncode == 0, done.stdout
            check_output(following.text.splitlines(), done.stdout, block.text)


def test_the_summary_for_managers(tmp_path: Path) -> None:
    small = str(DOCS / "examples" / "small.json")
    assert run(["allocator", "solve", small, "--out", "decision.json"], tmp_path).returncode == 0
    done = run([sys.executable, str(DOCS / "examples" / "summary.py"), small, "decision.json"], tmp_path)
    assert done.returncode == 0, done.stdout
    assert "1 because others are owed the GPUs" in done.stdout
    assert "all rules are kept" in done.stdout


@pytest.mark.parametrize("name", ["small.json"])
def test_examples_fit_the_schema(name: str, tmp_path: Path) -> None:
    schema = json.loads(run(["allocator", "schema", "snapshot"], tmp_path).stdout)
    document = json.loads((DOCS / "examples" / name).read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema).validate(document)


def test_every_rule_of_the_verifier_is_documented_under_its_name() -> None:
    table = (DOCS / "concepts.md").read_text(encoding="utf-8").partition("\n## Rules\n")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `([a-z_]+)` \|", table, re.MULTILINE) == list(RULES)
    formulation = (DOCS / "formulation.md").read_text(encoding="utf-8")
    assert [name for name in RULES if not re.search(rf"\b{name}\b", formulation)] == []


def test_every_reason_is_documented_under_its_name() -> None:
    table = (DOCS / "concepts.md").read_text(encoding="utf-8").partition("\n## Why something waits\n")[2]
    assert re.findall(r"^\| `([a-z_]+)` \|", table, re.MULTILINE) == list(Reason)


def test_every_rule_of_the_exact_model_is_in_the_formulation() -> None:
    listed = re.search(r"def add_all\(.*?\n\n    def", inspect.getsource(Constraints), re.DOTALL)
    assert listed is not None
    rules = re.findall(r"self\._(\w+)\(\)", listed[0])
    formulation = (DOCS / "formulation.md").read_text(encoding="utf-8")
    assert len(rules) > 5
    assert [name for name in rules if not re.search(rf"\b_?{name}\b", formulation)] == []


def anchors_of(page: Path) -> set[str]:
    heads = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), target
        assert not anchor or anchor in anchors_of(linked), target


def test_every_decision_record_is_listed_once_and_has_its_four_parts() -> None:
    listed = re.findall(r"\]\((\d{4}-[a-z-]+\.md)\)", (DOCS / "decisions" / "README.md").read_text(encoding="utf-8"))
    assert listed == sorted(path.name for path in (DOCS / "decisions").glob("[0-9]*.md"))
    for name in listed:
        text = (DOCS / "decisions" / name).read_text(encoding="utf-8")
        assert text.startswith(f"# {name[:4]}: "), name
        for part in ("Context", "Choice", "Alternatives", "Consequences"):
            assert text.count(f"**{part}.**") == 1, (name, part)


def test_the_reader_of_this_file_sees_a_false_claim() -> None:
    check_output(["a 1", "...", "c 3"], "a 2\nb\nc 4\n", "gap")
    for claimed in (["a", "c"], ["b"], ["a", "b"], ["a", "...", "d"]):
        with pytest.raises(AssertionError):
            check_output(claimed, "a\nb\nc\n", "false")
