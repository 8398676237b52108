"""A service in this process: with workers that are plain functions, for what does not need processes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from allocator.engine import allocate
from allocator.service.app import Service, create_app
from allocator.service.calls import Call, Reply, reply_to
from allocator.service.settings import Settings
from allocator.wire import decode_snapshot, encode_decision
from tests.wire.documents import Json, document, encoded, job, running

DECIDE = "d" * 24
READ = "r" * 24
JSON = {"content-type": "application/json"}


class InlinePool:
    """Answers in a thread of this process. `calls` is what it was asked, `failure` what it raises instead."""

    def __init__(self) -> None:
        self.alive, self.idle = 1, 1
        self.calls: list[Call] = []
        self.failure: Exception | None = None

    def start(self) -> None:
        self.alive = 1

    async def run(self, call: Call, *, wait_until: float, deadline: float) -> Reply:
        self.calls.append(call)
        if self.failure is not None:
            raise self.failure
        return await asyncio.to_thread(reply_to, call)

    async def close(self) -> None:
        self.alive = 0


class Caller:
    """A client, and the service behind it."""

    def __init__(self, client: TestClient, service: Service, pool: InlinePool) -> None:
        self.client, self.service, self.pool = client, service, pool

    def post(self, operation: str, body: bytes | Json, token: str | None = DECIDE, **headers: str) -> Any:
        """Call an operation; underscores in the names of headers are dashes."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.client.post(f"/v1/{operation}", content=content, headers={**JSON, **bearer(token), **named})

    def get(self, path: str, token: str | None = None) -> Any:
        return self.client.get(path, headers=bearer(token))


def bearer(token: str | None) -> dict[str, str]:
    return {} if token is None else {"authorization": f"Bearer {token}"}


@pytest.fixture(scope="session")
def small() -> bytes:
    """Work runs, work waits, and one workload is rejected."""
    return encoded(document(running("old", {"n1": 1}), job("new"), job("bad", allocation="nobody")))


@pytest.fixture(scope="session")
def pair(small: bytes) -> Json:
    """The snapshot with the decision of the heuristic."""
    decided = encode_decision(allocate(decode_snapshot(small), engine="greedy"))
    return {"snapshot": json.loads(small), "decision": json.loads(decided)}


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    path = tmp_path / "tokens"
    path.write_text(f"launcher decide {DECIDE}\ndashboard read {READ}\n")
    path.chmod(0o600)
    return path


@pytest.fixture
def serve(tokens: Path) -> Iterator[Callable[..., Caller]]:
    """Makes a service; settings that are not given stand at their defaults."""
    with ExitStack() as stack:

        def make(**settings: Any) -> Caller:
            app = create_app(Settings(**{"tokens": tokens, "workers": 1, **settings}))
            service: Service = app.state.service
            pool = InlinePool()
            service.pool = pool  # type: ignore[assignment]
            return Caller(stack.enter_context(TestClient(app, raise_server_exceptions=False)), service, pool)

        yield make


@pytest.fixture
def caller(serve: Callable[..., Caller]) -> Caller:
    return serve()
