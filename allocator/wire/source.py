"""From a file or its bytes to plain JSON text: gzip, byte order mark, and where exactly JSON is malformed."""

from __future__ import annotations

import json
import re
import zlib
from os import PathLike
from pathlib import Path
from typing import Any, NoReturn

from msgspec import Raw

from allocator.domain import Issue, OversizedError, SnapshotError

MAX_BYTES = 1 << 31
"""Most bytes a document may have when unpacked; a compressed one that grows beyond is refused, not unpacked further."""

_GZIP = b"\x1f\x8b"
_BOM = b"\xef\xbb\xbf"
_NOT_A_NUMBER = re.compile(rb"-?(NaN|Infinity|inf|nan)\b")
_CHUNK = 1 << 24


def read_bytes(source: str | PathLike[str] | bytes) -> bytes:
    """The bytes of a file, or the bytes themselves.

    Raises
    ------
    SnapshotError
        If the file cannot be read.
    """
    if isinstance(source, bytes):
        return source
    try:
        return Path(source).read_bytes()
    except OSError as error:
        refuse("$", f"cannot read {str(source)!r}: {error.strerror or error}", "name a file that exists and can be read")


def plain(data: bytes, limit: int | None = None) -> bytes:
    """The JSON text: unpacked if it is gzip-compressed, without a byte order mark.

    Raises
    ------
    OversizedError
        If it unpacks to more than `limit` bytes; None is `MAX_BYTES`.
    SnapshotError
        If the compressed data is damaged, or compressed a second time.
    """
    if data.startswith(_GZIP):
        data = _unpack(data, MAX_BYTES if limit is None else limit)
        if data.startswith(_GZIP):
            refuse("$", "the gzip data is compressed twice", "compress the document once")
    return data.removeprefix(_BOM)


def refuse(path: str, problem: str, remedy: str) -> NoReturn:
    """Refuse a document for one reason that hides all others."""
    raise SnapshotError([Issue(path=path, problem=problem, remedy=remedy)])


def refuse_syntax(data: bytes, error: Exception) -> NoReturn:
    """Refuse a document that is not JSON, naming line and column where they are known."""
    if isinstance(error, RecursionError):
        refuse("$", "nested too deeply", "no valid document has more than ten levels of nesting")
    if not data.strip():
        refuse("$", "the document is empty", "give one JSON object")
    found = re.search(r"\(byte (\d+)\)", str(error))
    if found is None:
        refuse("$", f"not JSON: {_reason(data, error)}", "give one JSON object in UTF-8")
    at = int(found[1])
    line, column = data.count(b"\n", 0, at) + 1, at - data.rfind(b"\n", 0, at)
    excerpt = data[at : at + 12].decode("utf-8", "replace")
    if token := _NOT_A_NUMBER.match(data, at - 1 if data[at - 1 : at] == b"-" else at):
        name = token[0].decode()
        problem = f"not JSON at line {line}, column {column}: {name} is no JSON number"
        refuse("$", problem, "give a finite number or leave the field out")
    what = re.sub(r"^JSON is malformed: | \(byte \d+\)$", "", str(error))
    refuse("$", f"not JSON at line {line}, column {column}: {what} at {excerpt!r}", "give one JSON object")


def loads(raw: bytes | Raw) -> Any:
    """Decode JSON without looking for fields. Numbers out of range become infinite, for the checks to name."""
    try:
        return json.loads(bytes(raw).decode(), parse_int=_integer)
    except ValueError as error:  # a reader that knows the fields had stopped before it came to this place
        refuse_syntax(bytes(raw), error)


def _integer(text: str) -> int | float:
    """An integer of any length; absurd ones become infinite instead of slow."""
    return int(text) if len(text) <= 40 else float("-inf" if text.startswith("-") else "inf")


def _reason(data: bytes, error: Exception) -> str:
    """What a syntax error without a position means."""
    if re.search(rb"\\u[dD][89a-fA-F]", data):
        return "it ends too early, or an escape such as \\ud800 is half of a surrogate pair"
    return "the document ends too early" if "truncated" in str(error) else str(error).removesuffix(".")


def _unpack(data: bytes, limit: int) -> bytes:
    """Unpack gzip, of one or several members, within the limit."""
    parts: list[bytes] = []
    size = 0
    while data.startswith(_GZIP):
        member = zlib.decompressobj(wbits=31)
        try:
            part = member.decompress(data, limit + 1 - size)
        except zlib.error as error:
            refuse("$", f"the gzip data is damaged ({error})", "write the file again")
        size += len(part)
        if size > limit:
            problem = f"unpacks to more than {limit:,} bytes"
            raise OversizedError([Issue(path="$", problem=problem, remedy="leave out usage older than the window")])
        if not member.eof:
            refuse("$", "the gzip data is truncated", "copy or write the file again, completely")
        parts.append(part)
        data = member.unused_data
    if data.strip(b"\0"):  # zeros pad blocks
        refuse("$", f"{len(data):,} bytes that are no gzip data follow the compressed document", "write the file again")
    return b"".join(parts)
