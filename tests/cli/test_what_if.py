"""`allocator explain --what-if`: a request in a file or on standard input, text or JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Invoke, write
from tests.wire.documents import Json, encoded, job

REQUEST: Json = {key: value for key, value in job("new", tasks=1).items() if key != "submit_time"}


def test_what_if(invoke: Invoke, snapshot: Path, decision: Path, tmp_path: Path) -> None:
    before = snapshot.read_bytes()
    found = invoke("explain", snapshot, decision, "--what-if", write(tmp_path / "request.json", REQUEST))
    assert (found.status, found.err) == (0, "")
    assert found.text.startswith("If new were submitted now, it would start\n")
    assert "2 decisions of greedy" in found.text
    assert snapshot.read_bytes() == before


def test_what_if_from_standard_input_as_json(invoke: Invoke, snapshot: Path, decision: Path) -> None:
    args = ("explain", snapshot, decision, "--what-if", "-", "--json", "--engine", "portfolio", "--time-limit", 5)
    found = invoke(*args, stdin=encoded(REQUEST))
    assert found.status == 0
    assert (found.json["view"], found.json["starts"], found.json["engine"]) == ("what_if", True, "portfolio")


def test_a_bad_request_is_refused_with_all_its_issues(invoke: Invoke, snapshot: Path, decision: Path) -> None:
    bad = json.dumps(REQUEST | {"tasks": 0, "allocation": "nobody"}).encode()
    found = invoke("explain", snapshot, decision, "--what-if", "-", stdin=bad)
    assert (found.status, found.out) == (2, b"")
    assert "<stdin>: $.tasks: 0 is not valid here" in found.err
    assert '<stdin>: $.allocation: unknown allocation "nobody"' in found.err


@pytest.mark.parametrize(
    "args",
    [
        ("{snapshot}", "{decision}", "w", "--what-if", "r.json"),
        ("{snapshot}", "{decision}", "--allocation", "eval", "--what-if", "r.json"),
        ("-", "{decision}", "--what-if", "-"),
        ("{snapshot}", "{decision}", "--what-if", "absent.json"),
        ("{snapshot}", "{decision}", "--what-if", "r.json", "--time-limit", "0"),
        ("{snapshot}", "{decision}", "--what-if", "r.json", "--engine", "magic"),
    ],
)
def test_wrong_usage(invoke: Invoke, snapshot: Path, decision: Path, args: tuple[str, ...]) -> None:
    given = [item.format(snapshot=snapshot, decision=decision) for item in args]
    found = invoke("explain", *given)
    assert (found.status, found.out) == (2, b"")
