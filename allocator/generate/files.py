"""Text files that may be compressed, with errors that name the file."""

from __future__ import annotations

import gzip
import io
import zipfile
from pathlib import Path

from allocator.domain import Issue, SnapshotError

GZIP_MAGIC = b"\x1f\x8b"
ZIP_MAGIC = b"PK\x03\x04"


def read_text(path: Path) -> str:
    """The text of a file, decompressed where it is gzip or a zip of one file, whatever its name says."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise refuse(str(path), f"cannot be read ({error.strerror})", "give a file that exists and may be read") from error
    if data.startswith(GZIP_MAGIC):
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError) as error:
            raise refuse(str(path), f"is a damaged gzip file ({error})", "fetch it again") from error
    if data.startswith(ZIP_MAGIC):
        data = _only_member(path, data)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise refuse(str(path), f"is not UTF-8 text (byte {error.start})", "give a text file, plain or gzip") from error


def _only_member(path: Path, data: bytes) -> bytes:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if len(names := archive.namelist()) != 1:
                raise refuse(str(path), f"holds {len(names)} files", "unpack it and give one of them")
            return archive.read(names[0])
    except zipfile.BadZipFile as error:
        raise refuse(str(path), f"is a damaged zip file ({error})", "fetch it again") from error


def refuse(place: str, problem: str, remedy: str) -> SnapshotError:
    """One issue as an error."""
    return SnapshotError([Issue(path=place, problem=problem, remedy=remedy)])
