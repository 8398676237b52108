"""Who is refused, and how: tokens, roles, paths, kinds of body, options, sizes, places."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from allocator.service.app import Service, create_app
from allocator.service.desk import Desk
from allocator.service.logs import FIELDS
from allocator.service.pool import WorkerError
from allocator.service.problems import RefusedError
from allocator.service.settings import Settings
from tests.service import fake_worker
from tests.service.conftest import DECIDE, JSON, READ, Caller, bearer
from tests.wire.documents import Json


def kind_of(answer: Any) -> str:
    """The kind of a problem, after checking that the document is complete."""
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["status"] == answer.status_code
    assert problem["title"]
    assert problem["instance"] == "urn:uuid:" + answer.headers["allocator-request"]
    return str(problem["type"].removeprefix("urn:allocator:problem:"))


# --- tokens ----------------------------------------------------------------------------------------------------------------

NO_TOKENS = [None, "", "Bearer", "Bearer ", f"Basic {DECIDE}", DECIDE, f"Bearer {DECIDE}x", f"Bearer {DECIDE[:-1]}", "Bearer é"]


@pytest.mark.parametrize("header", NO_TOKENS)
@pytest.mark.parametrize("operation", ["decisions", "verify", "apply", "explain"])
def test_without_a_valid_token_nothing_is_done(caller: Caller, small: bytes, operation: str, header: str | None) -> None:
    sent = [(b"content-type", b"application/json"), *([] if header is None else [(b"authorization", header.encode())])]
    answer = caller.client.post(f"/v1/{operation}", content=small, headers=sent)
    assert (answer.status_code, kind_of(answer)) == (401, "unauthenticated")
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert not caller.pool.calls


def test_the_role_read_does_not_decide(caller: Caller, small: bytes, pair: Json) -> None:
    refused = caller.post("decisions", small, token=READ)
    assert (refused.status_code, kind_of(refused)) == (403, "forbidden")
    assert not caller.pool.calls
    assert caller.post("verify", pair, token=READ).status_code == 200
    assert caller.get("/metrics", READ).status_code == 200
    assert caller.get("/metrics").status_code == 401


def test_pages_without_secrets_need_no_token(caller: Caller) -> None:
    for path in ("/healthz", "/readyz", "/openapi.json"):
        assert caller.get(path).status_code == 200, path


def test_a_service_without_tokens_serves_everybody(serve: Callable[..., Caller], small: bytes) -> None:
    caller = serve(tokens=None)
    assert caller.post("decisions", small, token=None, allocator_engine="greedy").status_code == 200


# --- the request -----------------------------------------------------------------------------------------------------------

PATHS = ["/", "/v1", "/v1/", "/v1/decisions/", "//v1/decisions", "/v1/../metrics", "/v1/%2e%2e/metrics", "/../../etc/passwd"]
PATHS += ["/v1/decisions%00", "/v1/decisions;x=1", "/V1/decisions", "/static/..%2f..%2fetc/passwd", "/" + "a" * 5000]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path[:30])
def test_paths_lead_nowhere_but_where_they_should(tokens: Path, path: str) -> None:
    app = create_app(Settings(tokens=tokens))
    status, problem, _ = asyncio.run(speak(app, [], bearer(DECIDE), path=path))
    assert (status, problem["type"]) == (404, "urn:allocator:problem:not-found")
    assert "/openapi.json" in problem["detail"]


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "TRACE"])
def test_only_post_decides(caller: Caller, method: str) -> None:
    answer = caller.client.request(method, "/v1/decisions", headers=bearer(DECIDE))
    assert (answer.status_code, kind_of(answer)) == (405, "method-not-allowed")
    assert answer.headers["allow"] == "POST"
    assert answer.json()["detail"] == "send POST"


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", None])
def test_only_json_is_read(caller: Caller, small: bytes, kind: str | None) -> None:
    headers = bearer(DECIDE) if kind is None else {**bearer(DECIDE), "content-type": kind}
    answer = caller.client.post("/v1/decisions", content=small, headers=headers)
    assert (answer.status_code, kind_of(answer)) == (415, "unsupported-media-type")


def test_only_gzip_is_unpacked(caller: Caller, small: bytes) -> None:
    answer = caller.post("decisions", small, content_encoding="br")
    assert answer.status_code == 415
    assert answer.headers["accept-encoding"] == "gzip"


@pytest.mark.parametrize(
    ("headers", "issue"),
    [
        ({"allocator_time_limit": "soon"}, 'Allocator-Time-Limit: "soon" is not valid here'),
        ({"allocator_time_limit": "0"}, "give a number from 0.1 to 60"),
        ({"allocator_time_limit": "61"}, "give a number from 0.1 to 60"),
        ({"allocator_time_limit": "nan"}, "give a number from 0.1 to 60"),
        ({"allocator_seed": "1.5"}, "give an integer from 0 to 2,147,483,647"),
        ({"allocator_seed": "-1"}, "give an integer from 0"),
        ({"allocator_seed": "1_000"}, "give an integer from 0"),
        ({"allocator_engine": "gredy"}, "give one of portfolio, greedy"),
        ({"allocator_gap": "2"}, "give a number from 0 to 1"),
        ({"allocator_gap": "1e999"}, "give a number from 0 to 1"),
        ({"allocator_sed": "1"}, "unknown header"),
    ],
)
def test_options_are_checked(caller: Caller, small: bytes, headers: dict[str, str], issue: str) -> None:
    answer = caller.post("decisions", small, token=DECIDE, **headers)
    assert (answer.status_code, kind_of(answer)) == (400, "bad-request")
    assert issue in answer.json()["detail"]
    assert not caller.pool.calls


@pytest.mark.parametrize(
    ("query", "issue"),
    [
        ("advance=-1", "give an integer from 0"),
        ("advance=1&advance=2", "given more than once"),
        ("advnace=1", 'did you mean "advance"?'),
    ],
)
def test_queries_are_checked(caller: Caller, pair: Json, query: str, issue: str) -> None:
    answer = caller.post(f"apply?{query}", pair)
    assert answer.status_code == 400
    assert issue in answer.json()["detail"]


def test_explain_takes_one_of_workload_and_allocation(caller: Caller, pair: Json) -> None:
    assert caller.post("explain?workload=new&allocation=eval", pair).status_code == 400
    assert "1 to 4,096 characters" in caller.post("explain?workload=", pair).json()["detail"]


def test_every_problem_of_the_options_is_told_at_once(caller: Caller, small: bytes) -> None:
    answer = caller.post("decisions?x=1", small, allocator_seed="a", allocator_gap="b")
    assert [issue["path"] for issue in answer.json()["issues"]] == ['"x"', "Allocator-Seed", "Allocator-Gap"]


# --- sizes and times -------------------------------------------------------------------------------------------------------


def chunks(count: int) -> Iterator[bytes]:
    """A body without a declared length."""
    for _ in range(count):
        yield b" " * 100


def test_a_body_that_is_too_large_by_its_own_account(serve: Callable[..., Caller]) -> None:
    caller = serve(max_body=1000)
    answer = caller.post("decisions", b" " * 1001)
    assert (answer.status_code, kind_of(answer)) == (413, "too-large")
    assert "1,000 bytes" in answer.json()["detail"]
    assert not caller.pool.calls


def test_a_body_that_does_not_say_how_large_it_is(serve: Callable[..., Caller]) -> None:
    caller = serve(max_body=1000)
    headers = {**JSON, **bearer(DECIDE)}
    assert caller.client.post("/v1/decisions", content=chunks(11), headers=headers).status_code == 413
    assert not caller.pool.calls
    assert caller.client.post("/v1/decisions", content=chunks(10), headers=headers).status_code == 422


async def speak(app: Any, messages: list[Any], headers: dict[str, str], path: str = "/v1/decisions") -> tuple[int, Json, int]:
    """Speak ASGI by hand: the status, the problem, and how many messages were received. After the last none comes."""
    received, sent = 0, list[Any]()

    async def receive() -> Any:
        nonlocal received
        if received == len(messages):
            return await asyncio.Future()
        received += 1
        return messages[received - 1]

    async def send(message: Any) -> None:
        sent.append(message)

    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": raw, "client": None}
    await app(scope, receive, send)
    return sent[0]["status"], json.loads(sent[1]["body"]), received


PART = {"type": "http.request", "body": b" " * 100, "more_body": True}
END = {"type": "http.request", "body": b"", "more_body": False}
LEFT = {"type": "http.disconnect"}
CHUNKED = {**JSON, "transfer-encoding": "chunked"}


def test_a_body_that_does_not_come(tokens: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("allocator.service.incoming.SLACK_SECONDS", 0.01)
    app = create_app(Settings(tokens=tokens, body_seconds=0.01))
    status, problem, _ = asyncio.run(speak(app, [PART], {**CHUNKED, **bearer(DECIDE)}))
    assert (status, problem["type"]) == (408, "urn:allocator:problem:slow-body")


def test_a_body_that_takes_half_of_the_time_budget(caller: Caller, small: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("allocator.service.app.WAIT_SHARE", 0.0)
    answer = caller.post("decisions", small)
    assert (answer.status_code, kind_of(answer)) == (408, "slow-body")
    assert "more than half of the time budget" in answer.json()["detail"]
    assert not caller.pool.calls


def test_a_client_that_leaves_in_the_middle(tokens: Path) -> None:
    app = create_app(Settings(tokens=tokens))
    assert asyncio.run(speak(app, [PART, LEFT], {**CHUNKED, **bearer(DECIDE)}))[0] == 499


@pytest.mark.parametrize("waits", [False, True], ids=["while it is worked on", "while it waits for a worker"])
def test_a_client_that_leaves_before_its_answer(tokens: Path, monkeypatch: pytest.MonkeyPatch, *, waits: bool) -> None:
    """Its call is given up, its place is free, and the next one is served."""
    monkeypatch.setattr("allocator.service.pool._BOOT", fake_worker.BOOT)
    app = create_app(Settings(tokens=tokens, workers=1, default_seconds=600, max_seconds=600))
    service: Service = app.state.service
    known = {**JSON, **bearer(DECIDE)}
    body = {"type": "http.request", "body": b"{}", "more_body": False}

    async def play() -> None:
        async with service.lifespan(app):
            await speak(app, [body], known)  # the worker is up
            hanging = asyncio.create_task(speak(app, [body], {**known, "allocator-engine": "milp"})) if waits else None
            await asyncio.sleep(0)
            status, problem, _ = await speak(app, [body, LEFT], {**known, "allocator-engine": "milp"})
            assert (status, problem["type"]) == (499, "urn:allocator:problem:client-left")
            assert service.desk.taken == waits
            if hanging is not None:
                hanging.cancel()
                await asyncio.gather(hanging, return_exceptions=True)
            assert service.desk.taken == 0
            assert (await speak(app, [body], known))[0] == 200, "its worker has been replaced"
            assert 'cause="abandoned"} 1.0' in service.metrics.page().decode()

    asyncio.run(play())


def test_a_refused_client_may_finish_sending_so_that_it_sees_the_answer(tokens: Path) -> None:
    app = create_app(Settings(tokens=tokens, max_body=150))
    messages, known = [PART, PART, END], {**CHUNKED, **bearer(DECIDE)}
    assert asyncio.run(speak(app, messages, CHUNKED))[::2] == (401, 3)
    assert asyncio.run(speak(app, messages, known))[::2] == (413, 3)
    assert asyncio.run(speak(app, [PART] * 50, known))[::2] == (413, 4), "but not for ever"
    assert asyncio.run(speak(app, messages, {**CHUNKED, "expect": "100-continue"}))[::2] == (401, 0), "nothing is underway"


def test_what_a_worker_cannot_do(caller: Caller, small: bytes) -> None:
    for failure, kind in ((TimeoutError(), "time-over"), (LookupError(), "busy")):
        caller.pool.failure = failure
        answer = caller.post("decisions", small)
        assert (answer.status_code, kind_of(answer)) == (503, kind)
        assert int(answer.headers["retry-after"]) >= 1
    for broken in (WorkerError("worker 1 ended with status -11"), RuntimeError("secret")):
        caller.pool.failure = broken
        answer = caller.post("decisions", small)
        assert (answer.status_code, kind_of(answer)) == (500, "internal-error")
        assert "secret" not in answer.text


# --- places ----------------------------------------------------------------------------------------------------------------


def refused_status(desk: Desk, client: str) -> int:
    with pytest.raises(RefusedError) as caught, desk.place(client):
        raise AssertionError("there was a place")
    assert int((caught.value.headers or {})["retry-after"]) >= 1
    return caught.value.kind.status


def test_places_are_bounded_for_each_client_and_for_all() -> None:
    desk = Desk(Settings(workers=1, queue=2, per_client=2))
    with desk.place("a"), desk.place("a"):
        assert refused_status(desk, "a") == 429
        with desk.place("b"):
            assert desk.taken == 3
            assert refused_status(desk, "c") == 503
    assert desk.taken == 0


def test_retry_after_grows_with_what_waits_and_is_bounded() -> None:
    desk = Desk(Settings(workers=1, queue=100, per_client=100))
    for _ in range(100):
        desk.note_duration(10.0)
    assert desk.retry_after() == {"retry-after": "10"}
    with desk.place("a"), desk.place("a"), desk.place("a"):
        assert desk.retry_after() == {"retry-after": "30"}
        for _ in range(100):
            desk.note_duration(1000.0)
        assert desk.retry_after() == {"retry-after": "60"}


def test_no_more_places(serve: Callable[..., Caller], small: bytes) -> None:
    caller = serve(per_client=1)
    with caller.service.desk.place("launcher"):
        answer = caller.post("decisions", small)
    assert (answer.status_code, kind_of(answer)) == (429, "too-many-calls")
    assert "retry-after" in answer.headers
    assert not caller.pool.calls
    assert caller.post("decisions", small, allocator_engine="greedy").status_code == 200


# --- state, logs, metrics --------------------------------------------------------------------------------------------------


def test_readiness_follows_the_workers(caller: Caller) -> None:
    caller.pool.alive = 0
    starting = caller.get("/readyz")
    assert (starting.status_code, starting.json()["status"]) == (503, "starting")
    assert starting.headers["retry-after"] == "1"
    caller.pool.alive, caller.service.stopping = 1, True
    assert caller.get("/readyz").json()["status"] == "stopping"
    assert caller.get("/healthz").status_code == 200


def test_every_request_is_logged_with_what_was_decided(caller: Caller, small: bytes, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "allocator.service.access"):
        decided = caller.post("decisions", small, allocator_engine="greedy")
        refused = caller.post("decisions", small, token="x" * 24)
    lines = [getattr(record, FIELDS) for record in caplog.records if record.name == "allocator.service.access"]
    assert lines[0]["decision"] == decided.headers["allocator-decision"]
    assert (lines[0]["client"], lines[0]["status"], lines[0]["bytes"]) == ("launcher", 200, len(small))
    assert lines[0]["request"] == decided.headers["allocator-request"]
    assert (lines[1]["client"], lines[1]["problem"], lines[1]["status"]) == (None, "unauthenticated", 401)
    assert lines[1]["request"] == refused.headers["allocator-request"]
    assert "x" * 24 not in str(lines)


def test_metrics_count_requests_refusals_and_decisions(caller: Caller, small: bytes) -> None:
    caller.post("decisions", small, allocator_engine="greedy")
    caller.post("decisions", small, token=None)
    caller.get("/nowhere/" + "x" * 100)
    page = caller.get("/metrics", READ).text
    assert 'allocator_requests_total{path="/v1/decisions",status="200"} 1.0' in page
    assert 'allocator_requests_total{path="other",status="404"} 1.0' in page, "paths of clients make no new series"
    assert 'allocator_refusals_total{problem="unauthenticated"} 1.0' in page
    assert "allocator_decisions_total{rung=" in page
    assert "allocator_workers 1.0" in page
    assert f"allocator_received_bytes_total {2.0 * len(small)}" in page


def test_answers_are_not_stored(caller: Caller) -> None:
    answer = caller.get("/healthz")
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"


WRONG = [{"workers": 0}, {"queue": -1}, {"per_client": 0}, {"max_body": 0}, {"default_seconds": 61}, {"body_seconds": 0}]


@pytest.mark.parametrize("wrong", WRONG)
def test_settings_that_make_no_sense(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must"):
        Settings(**wrong)
