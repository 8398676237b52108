"""The server around the application: sockets, TLS, signals, and an orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import ssl
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from types import FrameType

import uvicorn
from starlette.applications import Starlette

from allocator.domain import AllocatorError
from allocator.service.app import Service, create_app
from allocator.service.settings import Settings

logger = logging.getLogger(__name__)

MOST_CONNECTIONS = 2_000
"""Beyond that connections are refused before anything of them is read."""

HEADER_BYTES = 32 * 1024
"""Longer request lines and headers are refused."""

IDLE_SECONDS = 30
"""A connection on which nothing is asked is closed after that."""

STOP_SLACK = 5.0
"""Seconds to write the last answers."""


_BACKLOG = 2_048


class AddressError(AllocatorError):
    """The service cannot listen where it was told to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where the service listens, and its certificates (PEM files).

    With `clients` only clients whose certificate was signed by one of these authorities are talked to.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    certificate: Path | None = None
    key: Path | None = None
    clients: Path | None = None

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it."""
        with contextlib.suppress(ValueError):
            return ip_address(self.host).is_loopback
        return self.host == "localhost"


def run(settings: Settings, address: Address) -> None:
    """Serve until SIGTERM or SIGINT; then finish what was begun, and return. SIGHUP reads the tokens again.

    Raises
    ------
    SnapshotError
        If the file of tokens has problems.
    AddressError
        If the address is not to be had.
    OSError
        If the certificates cannot be read.
    """
    app = create_app(settings)
    listener = listen(address)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _done)
    with listener:
        logger.info("running on %s", _url(address, listener))
        asyncio.run(_serve(app, server_of(app, settings, address), listener))


def listen(address: Address) -> socket.socket:
    """A socket at the address: taken before workers are started, so that a wrong one costs nothing.

    Raises
    ------
    AddressError
        If another program has it, or it is none of this machine.
    """
    try:
        family, _, _, _, where = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(where[:2], family=family, backlog=_BACKLOG)
    except OSError as error:
        problem = f"{address.host}, port {address.port}: {error.strerror or error}"
        raise AddressError(f"{problem}: end what listens there, or give another address of this machine") from error


def _url(address: Address, listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    scheme = "http" if address.certificate is None else "https"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def server_of(app: Starlette, settings: Settings, address: Address) -> uvicorn.Server:
    """The server, not yet listening."""
    config = uvicorn.Config(
        app,
        host=address.host,
        port=address.port,
        ssl_certfile=address.certificate,
        ssl_keyfile=address.key,
        ssl_ca_certs=None if address.clients is None else str(address.clients),
        ssl_cert_reqs=ssl.CERT_NONE if address.clients is None else ssl.CERT_REQUIRED,
        http="h11",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=MOST_CONNECTIONS,
        h11_max_incomplete_event_size=HEADER_BYTES,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=int(settings.body_seconds + 1.1 * settings.max_seconds + STOP_SLACK),
    )
    return uvicorn.Server(config)


def _done(number: int, frame: FrameType | None) -> None:
    """The server raises a signal once more after it has obeyed it: there is nothing left to do, and no reason to die of it."""
    logger.info("stopped by %s", signal.Signals(number).name)


async def _serve(app: Starlette, server: uvicorn.Server, listener: socket.socket) -> None:
    service: Service = app.state.service
    if service.tokens is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, lambda: _reload(service))
    await server.serve(sockets=[listener])


def _reload(service: Service) -> None:
    if service.tokens is not None:
        service.tokens.refresh(force=True)
