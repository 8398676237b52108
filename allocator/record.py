"""The recorder: every epoch's snapshot and decision on disk, compressed, so that a question from production can be replayed.

An epoch is a pair of files, `<instant>-<digest>.snapshot.json.gz` and `.decision.json.gz`: the instant of the decision in
UTC, so that names sort by time, and the first digits of the snapshot's digest. `solve`, `explain`, `verify` and `apply` read
them as they are, `replay` the whole folder. The oldest pairs give way when there are too many or they take too much room.

    recorder = Recorder(Path("epochs"))
    recorder.record(snapshot, decision)
    for epoch in recorded(Path("epochs")):
        print(epoch.now, epoch.snapshot, epoch.decision)
"""

from __future__ import annotations

import gzip
import logging
import os
import re
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from allocator.domain import Decision, Snapshot
from allocator.wire import encode_decision, encode_snapshot

logger = logging.getLogger(__name__)

MAX_EPOCHS = 20_000
MAX_BYTES = 4 << 30
"""What is kept where nothing else is said: a day and more of an epoch every few seconds, and at most 4 GiB."""

_INSTANT = "%Y%m%dT%H%M%SZ"
_DIGITS = 12
_NAME = re.compile(r"(\d{8}T\d{6}Z)-([0-9a-f]+)\.(snapshot|decision)\.json\.gz")
_SNAPSHOT, _DECISION = ".snapshot.json.gz", ".decision.json.gz"


@dataclass(frozen=True, slots=True)
class RecordedEpoch:
    """The two files of one epoch, and the instant of its decision in seconds since the Unix epoch."""

    now: int
    snapshot: Path
    decision: Path


class Recorder:
    """Writes epochs into a folder and keeps it within its limits. May be shared by threads.

    A disk that is full or a folder that is gone costs the record, never the epoch: it is logged, and the caller goes on.

    Parameters
    ----------
    folder
        Made if it does not exist.
    max_epochs, max_bytes
        How much is kept; the newest epoch is kept in any case.
    """

    def __init__(self, folder: Path, *, max_epochs: int = MAX_EPOCHS, max_bytes: int = MAX_BYTES) -> None:
        if max_epochs < 1 or max_bytes < 1:
            raise ValueError(f"max_epochs and max_bytes must be at least 1 (not {max_epochs} and {max_bytes})")
        self.folder, self._max_epochs, self._max_bytes = folder, max_epochs, max_bytes
        self._lock = threading.Lock()

    def record(self, snapshot: Snapshot, decision: Decision) -> RecordedEpoch | None:
        """Write one epoch; None where it could not be written."""
        return self.record_bytes(decision.now, decision.snapshot, encode_snapshot(snapshot), encode_decision(decision))

    def record_bytes(self, now: int, digest: str, snapshot: bytes, decision: bytes) -> RecordedEpoch | None:
        """Write one epoch whose documents are encoded already.

        Parameters
        ----------
        now
            The instant of the decision.
        digest
            The snapshot's digest, as the decision names it.
        snapshot, decision
            The documents as JSON, not compressed.
        """
        stem = f"{datetime.fromtimestamp(now, UTC).strftime(_INSTANT)}-{_digits_of(digest)}"
        epoch = RecordedEpoch(now, self.folder / (stem + _SNAPSHOT), self.folder / (stem + _DECISION))
        try:
            with self._lock:
                self.folder.mkdir(parents=True, exist_ok=True)
                _write(epoch.snapshot, snapshot)
                _write(epoch.decision, decision)
                self._rotate(epoch)
        except OSError as error:
            logger.error("the epoch of %d is not recorded: %s; make room in %s", now, error, self.folder)
            with suppress(OSError):
                if not epoch.decision.exists():  # half a pair is of no use, and would never give way to newer ones
                    epoch.snapshot.unlink(missing_ok=True)
            return None
        return epoch

    def _rotate(self, newest: RecordedEpoch) -> None:
        """Remove the oldest epochs until the folder is within its limits."""
        epochs = [epoch for epoch in recorded(self.folder) if epoch != newest]
        sizes = [_size(epoch) for epoch in epochs]
        count, total = len(epochs) + 1, sum(sizes) + _size(newest)
        for epoch, size in zip(epochs, sizes, strict=True):
            if count <= self._max_epochs and total <= self._max_bytes:
                return
            epoch.decision.unlink(missing_ok=True)  # first: a pair without its decision is no epoch
            epoch.snapshot.unlink(missing_ok=True)
            count, total = count - 1, total - size


def recorded(folder: Path) -> Iterator[RecordedEpoch]:
    """The epochs of a folder, oldest first. What is no complete pair is passed over."""
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    present = set(names)
    for name in names:
        found = _NAME.fullmatch(name)
        if found is None or found[3] != "snapshot":
            continue
        partner = name.removesuffix(_SNAPSHOT) + _DECISION
        if partner in present:
            instant = datetime.strptime(found[1], _INSTANT).replace(tzinfo=UTC)
            yield RecordedEpoch(int(instant.timestamp()), folder / name, folder / partner)


def is_record(place: Path) -> bool:
    """Whether a place is a folder, or named like a file that the recorder has written."""
    return place.is_dir() or _NAME.fullmatch(place.name) is not None


def recorded_from(place: Path) -> list[RecordedEpoch]:
    """The epochs of a folder, or those from one of its files on."""
    if place.is_dir():
        return list(recorded(place))
    found = _NAME.fullmatch(place.name)
    stem = place.name if found is None else f"{found[1]}-{found[2]}."
    return [epoch for epoch in recorded(place.parent) if epoch.snapshot.name >= stem]


def _digits_of(digest: str) -> str:
    """The first hexadecimal digits of a digest; nothing else of it gets into a file name."""
    return re.sub(r"[^0-9a-f]", "", digest.rpartition(":")[2])[:_DIGITS] or "0"


def _size(epoch: RecordedEpoch) -> int:
    return sum(path.stat().st_size for path in (epoch.snapshot, epoch.decision) if path.exists())


def _write(path: Path, data: bytes) -> None:
    """Write a file whole or not at all; the same content gives the same bytes."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes(gzip.compress(data, compresslevel=6, mtime=0))
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
