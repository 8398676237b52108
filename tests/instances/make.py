"""Writes `instances/` from what is authored here: `python -m tests.instances.make`.

Run it after a change of formats, rules or objective, and look at the difference before it is committed: an optimum that moves
is a change of what the product wants. Derivations (README.md of the folders below `tiny`) are written by hand.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from allocator.bench.documents import EntryDoc, ProofDoc, entry_schema
from allocator.bench.machine import machine_facts
from allocator.domain import Decision, Snapshot
from allocator.engine import allocate
from allocator.wire import decode_snapshot, encode_decision, encode_snapshot, snapshot_digest
from tests.instances.authored import Authored
from tests.instances.situations import SITUATIONS
from tests.instances.tiny import TINY
from tests.instances.twins import TWINS

ROOT = Path(__file__).resolve().parents[2] / "instances"
GROUPS = {"tiny": TINY, "rules": TWINS, "situations": SITUATIONS}
PROVER = "cp-sat"
LICENCE = "Apache-2.0"
SOURCE = "this repository"
TABLE = re.compile(r"(<!-- entries (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def lines_of(value: Any, depth: int = 0) -> str:
    """JSON with a line for every element of a list of objects: short enough to read, long enough to compare."""
    pad = "  " * (depth + 1)
    if isinstance(value, dict) and depth < 2:
        items = (f"{pad}{json.dumps(key)}: {lines_of(item, depth + 1)}" for key, item in value.items())
        return "{\n" + ",\n".join(items) + "\n" + pad[2:] + "}" if value else "{}"
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[\n" + ",\n".join(pad + json.dumps(item) for item in value) + "\n" + pad[2:] + "]"
    return json.dumps(value)


def snapshot_text(snapshot: Snapshot) -> str:
    """The snapshot, policy written in full."""
    return lines_of(json.loads(encode_snapshot(snapshot))) + "\n"


def decision_text(snapshot: Snapshot, decision: Decision) -> str:
    """A decision of a twin; it names the snapshot that it is for."""
    named = replace(decision, snapshot=snapshot_digest(decode_snapshot(encode_snapshot(snapshot))))
    return lines_of(json.loads(encode_decision(named))) + "\n"


def entry_of(authored: Authored, *, by_hand: bool) -> EntryDoc:
    """What is said of an instance, with the optimum that the reference model proves."""
    decision = allocate(decode_snapshot(encode_snapshot(authored.snapshot)), time_limit=60, engine=PROVER)
    assert decision.solver.status == "optimal", f"{authored.name}: {decision.solver}"
    optimum = decision.solver.objective / 1000
    if authored.optimum is not None and optimum != authored.optimum:
        sys.stderr.write(f"{authored.name}: {optimum} proven, {authored.optimum} derived by hand\n")
    return EntryDoc(
        version=1,
        title=authored.title,
        special=authored.special,
        optimum=optimum,
        proof=ProofDoc(engine=PROVER, version=_version(), by_hand=by_hand),
        licence=LICENCE,
        source=SOURCE,
        expect=authored.expect,
        rule=authored.rule,
        also_broken=list(authored.also_broken),
        instead=authored.instead,
    )


def _version() -> str:
    facts = machine_facts()
    return f"ortools {facts['ortools']}, gpu-epoch-allocator {facts['version']}"


def entry_text(entry: EntryDoc) -> str:
    """The entry, without what is not said."""
    said = {key: value for key, value in msgspec.to_builtins(entry).items() if value not in (None, [], {})}
    if entry.expect is not None:
        said["expect"] = {key: value for key, value in said["expect"].items() if value not in (None, {})}
    return json.dumps(said, indent=2) + "\n"


def files_of(group: str, authored: Authored) -> Iterator[tuple[Path, str]]:
    """The files of one folder but for its entry."""
    folder = ROOT / group / authored.name
    yield folder / "snapshot.json", snapshot_text(authored.snapshot)
    if authored.accepted is not None and authored.refused is not None:
        yield folder / "accepted.json", decision_text(authored.snapshot, authored.accepted)
        yield folder / "refused.json", decision_text(authored.snapshot, authored.refused)


def table_of(group: str) -> str:
    """The rows of the README for one group, from the entries as they lie there."""
    lines = ["| name | size | what it is | what is special | optimum, GPU-seconds |", "| --- | --- | --- | --- | --- |"]
    if group == "rules":
        lines = ["| name | rule | what it is | refused, because | optimum, GPU-seconds |", lines[1]]
    for authored in GROUPS[group]:
        folder = ROOT / group / authored.name
        entry = msgspec.json.decode((folder / "entry.json").read_bytes(), type=EntryDoc)
        second, fourth = _size(authored.snapshot), entry.special
        if group == "rules":
            second, fourth = f"`{entry.rule}`", entry.instead or ""
        lines.append(
            f"| [{authored.name}]({group}/{authored.name}/) | {second} | {entry.title} | {fourth} | {optimum_text(entry)} |"
        )
    return "\n".join(lines)


def optimum_text(entry: EntryDoc) -> str:
    """Optimum or bounds for people."""
    if entry.optimum is None:
        return f"{entry.lower_bound:,.1f} to {entry.upper_bound:,.1f}"
    return f"{entry.optimum:,.3f}".rstrip("0").rstrip(".")


def _size(snapshot: Snapshot) -> str:
    gpus = sum(node.gpus for node in snapshot.cluster.nodes)
    running = sum(work.run is not None for work in snapshot.workloads)
    return f"{gpus} GPUs, {running} run, {len(snapshot.workloads) - running} wait"


def main() -> None:
    """Write everything."""
    for group, members in GROUPS.items():
        for authored in members:
            folder = ROOT / group / authored.name
            folder.mkdir(parents=True, exist_ok=True)
            for path, text in files_of(group, authored):
                path.write_text(text, encoding="utf-8")
            entry = entry_of(authored, by_hand=group == "tiny")
            (folder / "entry.json").write_text(entry_text(entry), encoding="utf-8")
    (ROOT / "entry.schema.json").write_text(json.dumps(entry_schema(), indent=2) + "\n", encoding="utf-8")
    readme = ROOT / "README.md"
    text = TABLE.sub(lambda match: f"{match[1]}{table_of(match[2])}\n{match[3]}", readme.read_text(encoding="utf-8"))
    readme.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
