"""Text files that may be compressed, with errors that name the file."""

from __future__ import annotations

import gzip
from pathlib import Path

from allocator.domain import Issue, SnapshotError

GZIP_MAGIC = b"\x1f\x8b"


def read_text(path: Path) -> str:
    """The text of a file, decompressed where it is gzip, whatever its name says."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise refuse(str(path), f"cannot be read ({error.strerror})", "give a file that exists and may be read") from error
    if data.startswith(GZIP_MAGIC):
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError) as error:
            raise refuse(str(path), f"is a damaged gzip file ({error})", "fetch it again") from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise refuse(str(path), f"is not UTF-8 text (byte {error.start})", "give a text file, plain or gzip") from error


def refuse(place: str, problem: str, remedy: str) -> SnapshotError:
    """One issue as an error."""
    return SnapshotError([Issue(path=place, problem=problem, remedy=remedy)])
