"""The outermost layer: gives each request a number, sees to it that refusals arrive, logs and counts the outcome."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from allocator.service.incoming import Incoming
from allocator.service.logs import FIELDS
from allocator.service.metrics import Metrics
from allocator.service.problems import MEDIA_TYPE, Kind, RefusedError, problem_body

logger = logging.getLogger("allocator.service.access")

ANONYMOUS_BYTES = 1 << 20
"""Of the body of a request without a valid token, no more than this is even received."""

_SHOWN = 200


@dataclass(slots=True)
class Note:
    """What becomes known of a request on its way; goes into the log. `arrived` is an instant of `time.monotonic`."""

    instance: str
    incoming: Incoming
    arrived: float
    client: str | None = None
    facts: dict[str, Any] = field(default_factory=dict)


def note_of(scope: Scope) -> Note:
    """The note of a request."""
    note: Note = scope["allocator"]
    return note


def problem_response(note: Note, refusal: RefusedError) -> Response:
    """The answer to a request that is refused."""
    note.facts |= {"problem": refusal.kind.value[0], "detail": refusal.detail}
    body = problem_body(refusal, note.instance)
    return Response(body, refusal.kind.status, {**(refusal.headers or {}), "content-type": MEDIA_TYPE})


class Watch:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp, metrics: Metrics, paths: Collection[str], max_body: int) -> None:
        self._app, self._metrics, self._paths, self._max_body = app, metrics, paths, max_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 0
        note = Note(uuid.uuid4().hex, Incoming(receive, Headers(scope=scope)), time.monotonic())

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                self._dress(message, note.instance)
                if not note.incoming.ended:
                    await note.incoming.throw_away(ANONYMOUS_BYTES if note.client is None else self._max_body)
            await send(message)

        try:
            await self._app({**scope, "allocator": note}, note.incoming.receive, answer)
        except Exception:
            logger.exception("request %s failed", note.instance)
            if status:  # an answer is underway and cannot be taken back: the server cuts it off
                raise
            refusal = RefusedError(Kind.INTERNAL, "please report it with the instance")
            await problem_response(note, refusal)(scope, receive, answer)
        finally:
            self._report(scope, note, status, time.monotonic() - note.arrived)

    def _dress(self, message: Message, instance: str) -> None:
        """Headers that every answer has."""
        headers = MutableHeaders(scope=message)
        headers["allocator-request"] = instance
        headers["cache-control"] = "no-store"
        headers["x-content-type-options"] = "nosniff"

    def _report(self, scope: Scope, note: Note, status: int, seconds: float) -> None:
        path = scope["path"] if scope["path"] in self._paths else "other"
        self._metrics.request(path, status, seconds, note.incoming.size)
        if "problem" in note.facts:
            self._metrics.refused(note.facts["problem"])
        elif "rung" in note.facts:
            self._metrics.decided(note.facts)
        fields = {
            "request": note.instance,
            "method": scope["method"][:_SHOWN],
            "path": scope["path"][:_SHOWN],
            "status": status,
            "seconds": round(seconds, 6),
            "bytes": note.incoming.size,
            "peer": scope["client"][0] if scope.get("client") else None,
            "client": note.client,
            **{f"call_{name}" if name == "seconds" else name: value for name, value in note.facts.items()},
        }
        level = logging.INFO if status < 400 or path in ("/readyz", "/healthz") else logging.WARNING
        logger.log(level, "%s %s", path, status, extra={FIELDS: fields})
