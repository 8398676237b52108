"""The documentation is true: its commands run and print what is claimed, its links lead somewhere, its rules exist.

The blocks of a page are run from top to bottom in one folder. In a ```console block every line that starts with `$ ` is run;
the lines below it are the claimed output. A ```python block is run, and its output compared with the ```text block that follows
it, if there is one. Words have to agree, numbers may differ; a line `...` stands for any number of lines, and `...` at the end
of a line for the rest of it. Comments on the lines before a block say more:

- `<!-- not run: why -->`: it is only to be read;
- `<!-- file: NAME -->`: readers save it under that name, and so does the test;
- `<!-- example: NAME -->`: a file of docs/examples is in the folder from here on.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import jsonschema
import pytest

from allocator.domain import Reason
from allocator.models.cpsat.constraints import Constraints
from allocator.verify import RULES
from tests.forked import Call, call_of, run_call
from tests.uncounted import uncounted

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]
RUN_PAGES = [ROOT / "README.md", DOCS / "tutorial.md", DOCS / "faq.md", *sorted((DOCS / "howto").glob("*.md"))]

_FENCE = re.compile(r"((?:<!-- [a-z ]+: [^>]+ -->\n)*)^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NOTE = re.compile(r"<!-- ([a-z ]+): ([^>]+) -->")


@dataclass(frozen=True)
class Block:
    """A fenced block that is to be run, what the comments before it say, and what it claims to print."""

    language: str
    text: str
    notes: dict[str, str]
    follows_directly: bool = False

    @property
    def runs(self) -> bool:
        return "not run" not in self.notes


def blocks_of(page: Path) -> list[Block]:
    blocks, end = [], -1
    for found in _FENCE.finditer(page.read_text(encoding="utf-8")):
        between = found.string[end : found.start()] if end >= 0 else "page"
        blocks.append(Block(found[2], found[3], dict(_NOTE.findall(found[1])), not between.strip()))
        end = found.end()
    return blocks


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

    def find(wanted: str) -> int:
        if wanted.endswith("..."):
            fit = (row for row in range(at, len(rest)) if rest[row].startswith(wanted.removesuffix("...").strip()))
            return next(fit, -1)
        return rest.index(wanted, at) if wanted in rest[at:] else -1

    at, gap = 0, False
    for line in claimed:
        if line.strip() == "...":
            gap = True
            continue
        wanted = loosely(line)
        if not wanted:
            continue
        found = find(wanted)
        assert found >= 0, f"{what}\nshould print {line!r} after line {at} of\n{printed}"
        assert gap or found == at, f"{what}\nprints more than is claimed before {line!r}:\n{printed}"
        at, gap = found + 1, False
    assert gap or not claimed or at == len(rest), f"{what}\nprints more than is claimed:\n{printed}"


def run_line(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a line as a reader does in a shell."""
    call = call_of(command)
    if call is not None:
        return run_call(call, folder, environment(), folder.with_suffix(".printed"))
    return run(["bash", "-o", "pipefail", "-c", command], folder)


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    env = environment()
    return subprocess.run(
        command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120, check=False
    )


def environment() -> dict[str, str]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**uncounted(), "PATH": path, "COLUMNS": "100", "NO_COLOR": "1"}


@pytest.mark.parametrize("page", RUN_PAGES, ids=lambda page: page.stem)
def test_what_a_page_shows_is_what_happens(page: Path, tmp_path: Path) -> None:
    if page.stem in ("README", "tutorial"):
        shutil.copytree(DOCS / "examples", tmp_path / "docs" / "examples")
    blocks = blocks_of(page)
    for block, following in zip(blocks, [*blocks[1:], None], strict=False):
        if "example" in block.notes:
            shutil.copy(DOCS / "examples" / block.notes["example"], tmp_path)
        if "file" in block.notes:
            (tmp_path / block.notes["file"]).write_text(block.text, encoding="utf-8")
        if block.language == "console" and block.runs:
            run_console(block.text, tmp_path)
        elif block.language == "python" and block.runs:
            run_python(block, following, tmp_path)


def run_console(text: str, folder: Path) -> None:
    for command, claimed in commands_of(text):
        done = run_line(command, folder)
        ended = re.fullmatch(r"\[exit status (\d+)\]", claimed[-1]) if claimed else None
        assert done.returncode == (int(ended[1]) if ended else 0), f"$ {command}\n{done.stdout}"
        check_output(claimed[:-1] if ended else claimed, done.stdout, f"$ {command}")


def run_python(block: Block, following: Block | None, folder: Path) -> None:
    done = run([sys.executable, "-c", block.text], folder)
    assert done.returncode == 0, f"{block.text}\n{done.stdout}"
    if following is not None and following.language == "text" and following.follows_directly and not following.notes:
        check_output(following.text.splitlines(), done.stdout, block.text)


def test_the_snapshot_of_the_how_tos_is_the_one_that_readers_write_first() -> None:
    shown = next(block for block in blocks_of(DOCS / "howto" / "own-cluster.md") if block.notes.get("file") == "lab.json")
    assert shown.text == (DOCS / "examples" / "lab.json").read_text(encoding="utf-8")


def test_the_summary_for_managers(tmp_path: Path) -> None:
    small = str(DOCS / "examples" / "small.json")
    assert run(["allocator", "solve", small, "--out", "decision.json"], tmp_path).returncode == 0
    done = run([sys.executable, str(DOCS / "examples" / "summary.py"), small, "decision.json"], tmp_path)
    assert done.returncode == 0, done.stdout
    assert "1 because others are owed the GPUs" in done.stdout
    assert "all rules are kept" in done.stdout


@pytest.mark.parametrize("name", ["small.json", "lab.json"])
def test_examples_fit_the_schema(name: str, tmp_path: Path) -> None:
    schema = json.loads(run(["allocator", "schema", "snapshot"], tmp_path).stdout)
    document = json.loads((DOCS / "examples" / name).read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema).validate(document)


def test_the_fields_without_a_default_are_those_of_the_schema(tmp_path: Path) -> None:
    schema = json.loads(run(["allocator", "schema", "snapshot"], tmp_path).stdout)
    kinds = [schema, *(schema["$defs"][name] for name in ("Cluster", "Node", "Allocation", "Usage", "Workload", "Run"))]
    table = (DOCS / "howto" / "own-cluster.md").read_text(encoding="utf-8").partition("fields without a default")[2]
    rows = [row.partition(". ")[0] for row in re.findall(r"^\| (?:the|a|its) (.*) \|$", table, re.MULTILINE)]
    listed = [re.sub(r"\(.*?\)", "", row).partition("|")[2] for row in rows]
    assert [re.findall(r"`(\w+)`", row) for row in listed] == [kind["required"] for kind in kinds]


def test_every_rule_of_the_verifier_is_documented_under_its_name() -> None:
    table = (DOCS / "concepts.md").read_text(encoding="utf-8").partition("\n## Rules\n")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `([a-z_]+)` \|", table, re.MULTILINE) == list(RULES)
    formulation = (DOCS / "formulation.md").read_text(encoding="utf-8")
    assert [name for name in RULES if not re.search(rf"\b{name}\b", formulation)] == []


def test_every_rule_reason_and_word_is_in_the_glossary() -> None:
    glossary = (DOCS / "glossary.md").read_text(encoding="utf-8")
    terms = {term for line in re.findall(r"^(\S.*)$", glossary, re.MULTILINE) for term in [line.strip().strip("`")]}
    assert [name for name in [*RULES, *Reason] if name not in terms] == []


def test_every_how_to_and_every_case_of_the_faq_is_complete() -> None:
    index = (DOCS / "howto" / "index.md").read_text(encoding="utf-8")
    listed = re.findall(r"\]\(([a-z-]+\.md)\)", index)
    assert sorted(listed) == sorted(page.name for page in (DOCS / "howto").glob("*.md") if page.name != "index.md")
    cases = (DOCS / "faq.md").read_text(encoding="utf-8").split("\n### ")[1:]
    assert len(cases) > 12
    for case in cases:
        assert case.startswith("How much ") or (case.count("**Cause.**"), case.count("**Cure.**")) == (1, 1), case


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
    check_output(["a 1 ..."], "a 2 and more\n", "rest of a line")
    for claimed in (["a", "c"], ["b"], ["a", "b"], ["a", "...", "d"], ["a", "...", "d ..."]):
        with pytest.raises(AssertionError):
            check_output(claimed, "a\nb\nc\n", "false")


def test_a_plain_call_is_told_from_what_needs_a_shell() -> None:
    assert call_of("allocator solve 'my lab.json' \\\n  --out d > told 2> notes") == Call(
        ("solve", "my lab.json", "--out", "d"), "told", "notes"
    )
    for line in ("allocator verify a b | head -3", "allocator verify $a b", "cmp a b", "allocator verify a b && rm a", ""):
        assert call_of(line) is None


def test_calls_end_and_print_like_commands_of_their_own(tmp_path: Path) -> None:
    for line in ("allocator --version", "allocator solve missing.json", "allocator schema snapshot --colour"):
        here, there = run_line(line, tmp_path), run(shlex.split(line), tmp_path)
        assert (here.returncode, here.stdout) == (there.returncode, there.stdout)
    (tmp_path / "kept").write_text("of before")
    assert run_line("allocator schema snapshot > kept 2> told", tmp_path).stdout == ""
    assert json.loads((tmp_path / "kept").read_text())["title"]
    assert (tmp_path / "told").read_text() == ""
