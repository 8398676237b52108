"""`allocator serve`: decisions over HTTP."""

from __future__ import annotations

import logging
import os
import ssl
from pathlib import Path
from typing import Annotated

import typer

from allocator.cli.documents import check_folder

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_MIB = 1 << 20
_LEVELS = ("debug", "info", "warning", "error")


def _level(value: str) -> str:
    if value not in _LEVELS:
        raise typer.BadParameter(f"{value!r}: give one of {', '.join(_LEVELS)}")
    return value


@app.command()
def serve(  # noqa: PLR0917  (typer reads options from the signature)
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="N", min=0, max=65_535, help="Port; 0 takes a free one.")] = 8080,
    tokens: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Bearer tokens: lines of name, role (read or decide) and token.")
    ] = None,
    no_tokens: Annotated[bool, typer.Option("--no-tokens", help="Serve everybody who is on this machine.")] = False,
    certificate: Annotated[Path | None, typer.Option(metavar="FILE", help="TLS certificate with its chain, PEM.")] = None,
    key: Annotated[Path | None, typer.Option(metavar="FILE", help="Key of the certificate, PEM.")] = None,
    clients: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Authorities that must have signed the clients' certificates, PEM.")
    ] = None,
    time_limit: Annotated[float, typer.Option(metavar="S", min=0.1, help="Seconds for calls that ask for none.")] = 10.0,
    max_time_limit: Annotated[float, typer.Option(metavar="S", min=0.1, help="Most seconds a call may ask for.")] = 60.0,
    workers: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Calls worked on at once; absent: one per processor.")
    ] = None,
    queue: Annotated[int, typer.Option(metavar="N", min=0, help="Calls that may wait for a worker.")] = 16,
    per_client: Annotated[int, typer.Option(metavar="N", min=1, help="Calls one token may have underway.")] = 8,
    max_body: Annotated[int, typer.Option(metavar="MIB", min=1, help="Most MiB of a body as sent.")] = 32,
    max_document: Annotated[int, typer.Option(metavar="MIB", min=1, help="Most MiB of a body unpacked.")] = 128,
    worker_memory: Annotated[int, typer.Option(metavar="MIB", min=0, help="Most MiB of a worker; 0: no limit.")] = 4096,
    record: Annotated[Path | None, typer.Option(metavar="DIR", help="Record every snapshot and decision here.")] = None,
    log_level: Annotated[str, typer.Option(metavar="LEVEL", callback=_level, help="debug, info, warning or error.")] = "info",
) -> None:
    """Decide over HTTP: snapshot in, decision out.

    Needs the extra `serve`. Logs go to standard error, one JSON object per line. SIGTERM ends it once all calls that were begun
    are answered, SIGHUP reads the tokens again.
    """
    try:
        from allocator.service import Settings
        from allocator.service.logs import log_as_json
        from allocator.service.run import Address, AddressError, run
    except ImportError as error:
        problem = f"{error.name} is not installed: pip install 'gpu-epoch-allocator[serve]'"
        raise typer.BadParameter(problem, param_hint="serve") from error

    address = Address(host=host, port=port, certificate=certificate, key=key, clients=clients)
    _check_tokens(tokens, no_tokens, address.is_local)
    _check_files(certificate, key, clients)
    check_folder(record)
    if time_limit > max_time_limit:
        raise typer.BadParameter(f"{time_limit:g} is above --max-time-limit {max_time_limit:g}", param_hint="--time-limit")
    settings = Settings(
        tokens=tokens,
        workers=workers or os.cpu_count() or 1,
        queue=queue,
        per_client=per_client,
        default_seconds=time_limit,
        max_seconds=max_time_limit,
        max_body=max_body * _MIB,
        max_document=max_document * _MIB,
        worker_memory=worker_memory * _MIB,
        record=record,
    )
    log_as_json(getattr(logging, log_level.upper()))
    try:
        run(settings, address)
    except AddressError as error:
        raise typer.BadParameter(str(error), param_hint="--host, --port") from error


def _check_tokens(tokens: Path | None, no_tokens: bool, is_local: bool) -> None:
    """Nobody serves the world by accident."""
    if (tokens is None) != no_tokens:
        raise typer.BadParameter("give a file, or --no-tokens to serve everybody on this machine", param_hint="--tokens")
    if no_tokens and not is_local:
        raise typer.BadParameter("others can reach this address: give --tokens, or --host 127.0.0.1", param_hint="--no-tokens")


def _check_files(certificate: Path | None, key: Path | None, clients: Path | None) -> None:
    if (certificate is None) != (key is None) or (clients is not None and certificate is None):
        raise typer.BadParameter("TLS needs --certificate and --key, both", param_hint="--certificate")
    for path, name in ((certificate, "--certificate"), (key, "--key"), (clients, "--clients")):
        if path is not None and not os.access(path, os.R_OK):
            raise typer.BadParameter(f"{path} cannot be read: give a PEM file", param_hint=name)
    if certificate is not None:
        _check_pem(certificate, key, clients)


def _check_pem(certificate: Path, key: Path | None, clients: Path | None) -> None:
    """Ensures that the key is that of the certificate, and that the authorities of the clients are certificates."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key)
    except ssl.SSLError as error:
        problem = f"{certificate} and {key} are no pair ({error}): give PEM files that belong together"
        raise typer.BadParameter(problem, param_hint="--certificate") from error
    try:
        if clients is not None:
            context.load_verify_locations(clients)
    except ssl.SSLError as error:
        raise typer.BadParameter(
            f"{clients} holds no certificate ({error}): give a PEM file", param_hint="--clients"
        ) from error
