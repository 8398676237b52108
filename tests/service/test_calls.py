"""What the four operations answer, and that it is what the command line would say."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from allocator.domain import InfeasibleError
from allocator.service.calls import Call, Epoch, reply_to
from allocator.verify import verify
from allocator.wire import decision_schema, decode_decision, decode_snapshot, snapshot_digest
from tests.cli import conftest as cli
from tests.cli.conftest import Invoke
from tests.service.conftest import READ, Caller
from tests.wire.documents import Json, document, issues_of, job

invoke = cli.invoke  # the fixture

CONTRADICTION = document(job("a"), job("a"), budgets=[{"id": "eval", "parent": "none", "share": 1}])


def test_a_snapshot_gives_a_decision(caller: Caller, small: bytes) -> None:
    answer = caller.post("decisions", small, allocator_engine="greedy")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    jsonschema.validate(answer.json(), decision_schema())
    snapshot, decision = decode_snapshot(small), decode_decision(answer.content)
    assert verify(snapshot, decision).ok
    assert answer.headers["allocator-snapshot"] == decision.snapshot == snapshot_digest(snapshot)
    assert "bad" in {row.workload for row in decision.waiting}


def test_the_digest_of_a_decision_does_not_depend_on_how_long_it_took(caller: Caller, small: bytes) -> None:
    first, second = (caller.post("decisions", small, allocator_engine="greedy") for _ in range(2))
    assert first.headers["allocator-decision"] == second.headers["allocator-decision"]
    assert first.headers["allocator-decision"].startswith("sha256:")


def test_options_reach_the_engine(caller: Caller, small: bytes) -> None:
    headers = {"allocator_seed": "7", "allocator_gap": "0.01", "allocator_time_limit": "3.5", "allocator_engine": "greedy"}
    assert caller.post("decisions", small, **headers).json()["solver"]["seed"] == 7
    (call,) = caller.pool.calls
    assert (call.seed, call.gap, call.engine) == (7, 0.01, "greedy")
    assert 0 < call.seconds <= 3.5


def test_a_call_without_options_has_the_defaults_of_the_service(serve: Callable[..., Caller], small: bytes) -> None:
    caller = serve(default_seconds=2.0)
    caller.post("verify", small)
    assert caller.pool.calls[0].engine == "portfolio"
    assert 0 < caller.pool.calls[0].seconds <= 2.0


@pytest.mark.parametrize("declared", [True, False])
def test_gzip_in_and_out(caller: Caller, small: bytes, declared: bool) -> None:
    encoding = {"content_encoding": "gzip"} if declared else {}
    answer = caller.post("decisions", gzip.compress(small), allocator_engine="greedy", accept_encoding="gzip", **encoding)
    assert answer.status_code == 200
    assert answer.headers["content-encoding"] == "gzip"
    assert answer.json()["version"] == 1
    plain = caller.post("decisions", small, allocator_engine="greedy", accept_encoding="identity")
    assert "content-encoding" not in plain.headers


def test_the_answers_are_those_of_the_command_line(caller: Caller, pair: Json, invoke: Invoke, tmp_path: Path) -> None:
    files = [tmp_path / f"{name}.json" for name in ("snapshot", "decision")]
    for path, value in zip(files, pair.values(), strict=True):
        path.write_text(json.dumps(value))
    verdict = caller.post("verify", pair, token=READ)
    assert verdict.json() == invoke("verify", *files, "--json").json
    assert verdict.json()["ok"]
    explained = caller.post("explain", pair, token=READ, accept="text/plain")
    assert explained.text == invoke("explain", *files).text
    assert explained.headers["content-type"].startswith("text/plain")
    assert caller.post("explain", pair).json() == invoke("explain", *files, "--json").json
    assert caller.post("apply?advance=60", pair).content == invoke("apply", *files, "--advance", 60).out


def test_a_broken_rule_is_an_answer(caller: Caller, pair: Json) -> None:
    starts = [{**row, "placement": {"n1": 9}} for row in pair["decision"]["starts"]]
    answer = caller.post("verify", {**pair, "decision": {**pair["decision"], "starts": starts}})
    assert answer.status_code == 200
    assert not answer.json()["ok"]
    assert {"gang", "capacity"} <= {row["rule"] for row in answer.json()["violations"]}


def test_one_workload_or_one_allocation_is_explained(caller: Caller, pair: Json) -> None:
    assert caller.post("explain?workload=new", pair).json()["id"] == "new"
    assert caller.post("explain?allocation=eval", pair).json()["view"] == "allocation"
    unknown = caller.post("explain?workload=nwe", pair)
    assert unknown.status_code == 422
    assert 'did you mean "new"?' in str(unknown.json()["issues"][0])


def test_a_decision_for_another_snapshot(caller: Caller, pair: Json) -> None:
    other = {**pair, "decision": {**pair["decision"], "snapshot": "sha256:" + "0" * 64}}
    explained = caller.post("explain", other)
    assert explained.status_code == 422
    assert (explained.json()["issues"][0]["document"], explained.json()["issues"][0]["path"]) == ("decision", "$.snapshot")
    applied = caller.post("apply", other)
    assert applied.status_code == 200
    assert "the decision was made for" in applied.headers["allocator-warning"]
    assert "allocator-warning" not in caller.post("apply", pair).headers


def test_all_issues_in_the_words_of_the_command_line(caller: Caller) -> None:
    answer = caller.post("decisions", CONTRADICTION)
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    wanted = [{"path": i.path, "problem": i.problem, "remedy": i.remedy} for i in issues_of(CONTRADICTION)]
    assert problem["issues"] == wanted
    assert len(wanted) >= 2
    assert problem["type"] == "urn:allocator:problem:bad-document"
    assert problem["status"] == 422
    assert problem["instance"].removeprefix("urn:uuid:") == answer.headers["allocator-request"]


def test_the_issues_of_a_pair_say_in_which_document(caller: Caller, pair: Json) -> None:
    answer = caller.post("verify", {"snapshot": CONTRADICTION, "decision": {"version": 1}, "more": 0})
    issues = answer.json()["issues"]
    assert {issue.get("document") for issue in issues} == {None, "snapshot", "decision"}
    assert all(issue["path"].startswith("$") for issue in issues)
    missing = caller.post("verify", {"snapshot": pair["snapshot"]}).json()["issues"]
    assert [issue["path"] for issue in missing] == ["$.decision"]


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"", "the document is empty"),
        (b"[]", "not a JSON object"),
        (b"{", "ends too early"),
        (b'{"snapshot": NaN}', "NaN is no JSON number"),
        (b"\x1f\x8bnothing", "the gzip data is damaged"),
        (gzip.compress(gzip.compress(b"{}")), "compressed twice"),
        (gzip.compress(b"{}" * 1000)[:-9], "truncated"),
        (b'{"snapshot":' + b"[" * 100_000, "nested too deeply"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "nested too deeply"),
    ],
    ids=["empty", "array", "cut", "nan", "no gzip", "twice", "cut gzip", "deep arrays", "deep objects"],
)
@pytest.mark.parametrize("operation", ["decisions", "verify"])
def test_what_is_no_document(caller: Caller, operation: str, body: bytes, problem: str) -> None:
    answer = caller.post(operation, body)
    assert answer.status_code == 422
    assert problem in str(answer.json()["issues"])


def test_a_document_with_countless_problems_gets_a_bounded_answer(caller: Caller) -> None:
    answer = caller.post("decisions", document(usage=[0] * 5_000))
    assert len(answer.json()["issues"]) == 1_000
    assert "5,000 problems" in answer.json()["detail"]


def call_of(body: bytes, operation: str = "decisions") -> Call:
    return Call(operation=operation, body=body, instance="1", seconds=9.0, max_document=1 << 20, engine="greedy")


def test_a_decision_is_recorded_before_it_is_handed_out(small: bytes) -> None:
    kept: list[Epoch] = []
    reply = reply_to(call_of(gzip.compress(small)), kept.append)
    assert [(epoch.snapshot, epoch.decision) for epoch in kept] == [(small, reply.body)]
    assert kept[0].digest == reply.headers["allocator-snapshot"]
    assert reply_to(call_of(b"{}"), kept.append).status == 422
    assert len(kept) == 1


def failing(error: Exception) -> Callable[..., Any]:
    def fail(*args: object, **options: object) -> None:
        raise error

    return fail


def test_no_memory_ends_the_worker(small: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("allocator.engine.allocate", failing(MemoryError()))
    reply = reply_to(call_of(small))
    assert (reply.status, reply.last) == (413, True)


def test_what_breaks_inside_is_told_to_the_log_alone(
    small: bytes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("allocator.engine.allocate", failing(InfeasibleError("secret")))
    reply = reply_to(call_of(small))
    assert (reply.status, reply.last) == (500, False)
    assert b"secret" not in reply.body
    assert "secret" in caplog.text


@pytest.mark.parametrize("operation", ["decisions", "verify"])
def test_what_unpacks_to_too_much_is_refused(small: bytes, operation: str) -> None:
    reply = reply_to(call_of(gzip.compress(b" " * (1 << 22) + small), operation))
    assert reply.status == 413
    assert b"1,048,576 bytes" in reply.body
