"""The routes and what stands behind them: token, place, body, worker."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from allocator.service.calls import Call, Reply
from allocator.service.desk import Desk
from allocator.service.metrics import MEDIA_TYPE as METRICS_TYPE
from allocator.service.metrics import Metrics
from allocator.service.openapi import OPERATIONS, openapi
from allocator.service.parameters import options_of, parameters_of
from allocator.service.pool import Pool, WorkerError
from allocator.service.problems import Kind, RefusedError
from allocator.service.settings import Settings
from allocator.service.tokens import ANYBODY, Client, Role, Tokens
from allocator.service.watch import Watch, note_of, problem_response

WAIT_SHARE = 0.5
"""A call waits for a worker no longer than this part of its time budget; the other part is for the answer."""

GRACE_SHARE = 0.05
"""A worker that is late by this part of the time budget is killed."""

_JSON_TYPES = ("application/json", "application/gzip")
_ENCODINGS = ("", "identity", "gzip")
_STATUSES = {404: Kind.NOT_FOUND, 405: Kind.METHOD}

Endpoint = Callable[[Request], Awaitable[Response]]


class Service:
    """The state of one service, and its endpoints."""

    def __init__(self, settings: Settings) -> None:
        """Raises `SnapshotError` if the file of tokens has problems."""
        self.settings = settings
        self.metrics = Metrics()
        self.desk = Desk(settings)
        self.pool = Pool(settings, self.metrics.replaced)
        self.tokens = None if settings.tokens is None else Tokens(settings.tokens)
        self.stopping = False
        self.document = openapi(settings)
        self.metrics.watch("workers", "Worker processes that are up.", lambda: self.pool.alive)
        self.metrics.watch("workers_idle", "Worker processes that wait for a call.", lambda: self.pool.idle)
        self.metrics.watch("calls_underway", "Calls that are worked on or wait for a worker.", lambda: self.desk.taken)

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        """Workers live as long as the service."""
        self.stopping = False
        self.pool.start()
        try:
            yield
        finally:
            self.stopping = True
            await self.pool.close()

    def routes(self) -> list[Route]:
        """All there is."""
        roles = {name: operation.role for name, operation in OPERATIONS.items()}
        calls = [Route(f"/v1/{name}", self._endpoint(name, role), methods=["POST"]) for name, role in roles.items()]
        pages = {"/healthz": self._health, "/readyz": self._ready, "/metrics": self._metrics, "/openapi.json": self._openapi}
        return [*calls, *(Route(path, page, methods=["GET"]) for path, page in pages.items())]

    async def _health(self, request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def _ready(self, request: Request) -> Response:
        if self.pool.alive and not self.stopping:
            return JSONResponse({"status": "ok"})
        return JSONResponse({"status": "stopping" if self.stopping else "starting"}, 503, {"retry-after": "1"})

    async def _metrics(self, request: Request) -> Response:
        self._admit(request, Role.READ)
        return Response(self.metrics.page(), headers={"content-type": METRICS_TYPE})

    async def _openapi(self, request: Request) -> Response:
        return JSONResponse(self.document)

    def _endpoint(self, operation: str, role: Role) -> Endpoint:
        parameters = parameters_of(operation, self.settings)

        async def endpoint(request: Request) -> Response:
            client = self._admit(request, role)
            _check_body_kind(request)
            options = options_of(request, parameters)
            with self.desk.place(client.name):
                reply = await self._answer(request, operation, options)
            note_of(request.scope).facts |= reply.facts
            return Response(reply.body, reply.status, {**reply.headers, "vary": "accept, accept-encoding"})

        return endpoint

    def _admit(self, request: Request, role: Role) -> Client:
        """Whoever calls, if the token allows it."""
        client = ANYBODY
        if self.tokens is not None:
            self.tokens.refresh()
            found = self.tokens.client_of(request.headers.get("authorization"))
            if found is None:
                detail = "send a token that the service knows: Authorization: Bearer TOKEN"
                raise RefusedError(Kind.UNAUTHENTICATED, detail, headers={"www-authenticate": 'Bearer realm="allocator"'})
            client = found
        note_of(request.scope).client = client.name
        if not client.role.covers(role):
            raise RefusedError(Kind.FORBIDDEN, f"this needs the role {role}, the token has {client.role}")
        return client

    async def _answer(self, request: Request, operation: str, options: dict[str, Any]) -> Reply:
        """Read the body and have a worker answer it. The time budget runs from the moment the request was seen."""
        note = note_of(request.scope)
        seconds = options.pop("seconds", self.settings.default_seconds)
        body = await note.incoming.read(self.settings.max_body, self.settings.body_seconds)
        spent = time.monotonic() - note.arrived
        note.facts["body_seconds"] = round(spent, 6)
        if spent > WAIT_SHARE * seconds:
            detail = f"the body took {spent:.2f} s, more than half of the time budget of {seconds:g} s"
            raise RefusedError(Kind.SLOW_BODY, detail, headers=self.desk.retry_after())
        call = Call(
            operation=operation,
            body=body,
            instance=note.instance,
            seconds=seconds - spent,
            max_document=self.settings.max_document,
            as_text=operation == "explain" and request.headers.get("accept", "").startswith("text/plain"),
            compress="gzip" in request.headers.get("accept-encoding", ""),
            **options,
        )
        wait_until, deadline = (note.arrived + share * seconds for share in (WAIT_SHARE, 1 + GRACE_SHARE))
        try:
            reply = await note.incoming.answer(self.pool.run(call, wait_until=wait_until, deadline=deadline))
        except LookupError:
            detail = f"no worker was free within {WAIT_SHARE * seconds:g} s, half of the time budget"
            raise RefusedError(Kind.BUSY, detail, headers=self.desk.retry_after()) from None
        except TimeoutError:
            self.desk.note_duration(seconds)
            most = self.settings.max_seconds
            detail = f"give more than {seconds:g} s, up to {most:g} s, in Allocator-Time-Limit, or try again"
            raise RefusedError(Kind.TIME_OVER, detail, headers=self.desk.retry_after()) from None
        except WorkerError as error:
            raise RefusedError(Kind.INTERNAL, f"{error}; please report it with the document") from error
        self.desk.note_duration(reply.facts["seconds"])
        return reply


def create_app(settings: Settings) -> Starlette:
    """The service as an ASGI application.

    Raises
    ------
    SnapshotError
        If the file of tokens has problems.
    """
    service = Service(settings)
    routes = service.routes()
    watch = Middleware(
        Watch, metrics=service.metrics, paths=frozenset(route.path for route in routes), max_body=settings.max_body
    )
    handlers: dict[Any, Any] = {RefusedError: _refused, HTTPException: _unrouted}
    app = Starlette(routes=routes, middleware=[watch], exception_handlers=handlers, lifespan=service.lifespan)
    app.router.redirect_slashes = False
    app.state.service = service
    return app


def _check_body_kind(request: Request) -> None:
    """Only JSON, plain or gzip-compressed; gzip is recognised by its first bytes, whatever the headers say."""
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if kind not in _JSON_TYPES:
        raise RefusedError(Kind.MEDIA, f"send Content-Type: {' or '.join(_JSON_TYPES)}")
    if request.headers.get("content-encoding", "").strip().lower() not in _ENCODINGS:
        raise RefusedError(
            Kind.MEDIA, "send the body plain or with Content-Encoding: gzip", headers={"accept-encoding": "gzip"}
        )


async def _refused(request: Request, error: RefusedError) -> Response:
    return problem_response(note_of(request.scope), error)


async def _unrouted(request: Request, error: HTTPException) -> Response:
    kind = _STATUSES.get(error.status_code, Kind.BAD_REQUEST)
    details = {Kind.NOT_FOUND: "GET /openapi.json lists all there is", Kind.METHOD: _allowed(error)}
    detail = details.get(kind, str(error.detail))
    return problem_response(note_of(request.scope), RefusedError(kind, detail, headers=error.headers))


def _allowed(error: HTTPException) -> str:
    """Which methods there are at this place; the router names them in the header."""
    methods = Headers(error.headers).get("allow", "")
    return f"send {' or '.join(sorted(methods.split(', ')))}" if methods else str(error.detail)
