"""Who may do what: a file of bearer tokens, read again when it changes.

One token on each line: name, role, token. Instead of a token its digest may stand there: `sha256:` and 64 hexadecimal digits.

    # name     role    token
    slurm      decide  sha256:5e88...
    dashboard  read    4f1c9c1e8d2b4a6f9a0b7c3d
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from allocator.domain import Issue, SnapshotError

logger = logging.getLogger(__name__)

LEAST_LENGTH = 16
"""Shorter tokens can be guessed."""

_BEARER = re.compile(r"[Bb]earer +([A-Za-z0-9._~+/=-]+) *")
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")


class Role(StrEnum):
    """What a token is good for: `read` asks about decisions and metrics, `decide` does all of that and decides."""

    READ = "read"
    DECIDE = "decide"

    def covers(self, wanted: Role) -> bool:
        """True where this role may do what needs the other."""
        return self is Role.DECIDE or wanted is Role.READ


@dataclass(frozen=True, slots=True)
class Client:
    """Whoever holds a token."""

    name: str
    role: Role


ANYBODY = Client("anybody", Role.DECIDE)
"""Whoever calls a service without tokens."""


class Tokens:
    """The tokens of a file. Only their digests are kept."""

    def __init__(self, path: Path) -> None:
        """Raises `SnapshotError` with every problem of the file."""
        self._path = path
        self._seen = _mark(path)
        self._clients = _read(path)

    def client_of(self, authorization: str | None) -> Client | None:
        """Whose token an Authorization header carries. All tokens are compared, each in constant time."""
        sent = _BEARER.fullmatch(authorization or "")
        digest = _digest(sent[1] if sent else "")
        found = [client for known, client in self._clients.items() if hmac.compare_digest(known, digest)]
        return found[0] if found and sent else None

    def refresh(self, *, force: bool = False) -> None:
        """Read the file again if it has changed. A file with problems changes nothing; the log names them."""
        mark = _mark(self._path)
        if mark == self._seen and not force:
            return
        self._seen = mark
        try:
            self._clients = _read(self._path)
        except SnapshotError as error:
            logger.error("the tokens stay as they were: %s", error)
            return
        logger.info("%d tokens read from %s", len(self._clients), self._path)


def _mark(path: Path) -> tuple[int, int, int] | None:
    """Changes whenever the file does; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _read(path: Path) -> dict[bytes, Client]:
    """Clients by the digest of their token."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        problem = f"cannot be read ({getattr(error, 'strerror', None) or error})"
        raise SnapshotError([Issue(path=str(path), problem=problem, remedy="give a text file of tokens")]) from error
    if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO) & ~stat.S_IRGRP:
        logger.warning("%s can be read or written by others than its owner and group: chmod 640", path)
    clients: dict[bytes, Client] = {}
    issues: list[Issue] = []
    for at, line in enumerate(text.splitlines(), start=1):
        words = line.split("#")[0].split()
        if not words:
            continue
        wrong = list(_issues(words, f"{path}: line {at}"))
        issues += wrong
        if not wrong and (key := _known(words[2])) in clients:
            issues.append(Issue(path=f"{path}: line {at}", problem="the token was given before", remedy="make a new one"))
        elif not wrong:
            clients[key] = Client(words[0], Role(words[1]))
    if not clients and not issues:
        issues.append(Issue(path=str(path), problem="holds no token", remedy="give lines of name, role and token"))
    if issues:
        raise SnapshotError(issues)
    return clients


def _issues(words: list[str], path: str) -> Iterator[Issue]:
    """What is wrong with a line; the token itself is never quoted."""
    if len(words) != 3:
        yield Issue(path=path, problem=f"{len(words)} words", remedy="give name, role and token")
        return
    name, role, token = words
    if not _NAME.fullmatch(name):
        yield Issue(path=path, problem=f"{name!r} is no name", remedy="give up to 64 letters, digits, dots and dashes")
    if role not in list(Role):
        yield Issue(path=path, problem=f"unknown role {role!r}", remedy=f"give one of {', '.join(Role)}")
    if token.startswith("sha256:") and not _DIGEST.fullmatch(token):
        yield Issue(path=path, problem="the digest is damaged", remedy="give sha256: and 64 hexadecimal digits, lower case")
    elif len(token) < LEAST_LENGTH or not _BEARER.fullmatch(f"Bearer {token}" if "sha256:" not in token else "Bearer x"):
        remedy = f"give at least {LEAST_LENGTH} letters and digits: openssl rand -hex 32"
        yield Issue(path=path, problem="the token is too short or has characters that no header carries", remedy=remedy)


def _known(token: str) -> bytes:
    found = _DIGEST.fullmatch(token)
    return bytes.fromhex(found[1]) if found else _digest(token)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
