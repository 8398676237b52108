"""What an operator may set, with defaults that suit one cluster."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

MIB = 1 << 20


def _cores() -> int:
    return os.cpu_count() or 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Limits of the service. The bodies in memory never exceed (`workers` + `queue`) times `max_body`.

    Attributes
    ----------
    tokens
        File of tokens; None serves everybody who can reach the port.
    workers, queue
        Calls that are worked on at once, and calls that may wait for a worker.
    per_client
        Calls that one token may have underway.
    default_seconds, max_seconds
        Time budget of a call that names none, and the most a call may ask for.
    body_seconds
        Time in which a body must have arrived.
    max_body, max_document
        Most bytes of a body as sent, and unpacked.
    worker_memory
        Most bytes of data of one process of a worker; 0 is no limit.
    record
        Folder for snapshots and decisions; None records nothing.
    """

    tokens: Path | None = None
    workers: int = field(default_factory=_cores)
    queue: int = 16
    per_client: int = 8
    default_seconds: float = 10.0
    max_seconds: float = 60.0
    body_seconds: float = 30.0
    max_body: int = 32 * MIB
    max_document: int = 128 * MIB
    worker_memory: int = 4096 * MIB
    record: Path | None = None

    def __post_init__(self) -> None:
        least = {"workers": 1, "queue": 0, "per_client": 1, "max_body": 1, "max_document": 1, "worker_memory": 0}
        for name, value in least.items():
            if getattr(self, name) < value:
                raise ValueError(f"{name} must be at least {value} (not {getattr(self, name)})")
        if not 0 < self.default_seconds <= self.max_seconds or not self.body_seconds > 0:
            raise ValueError("0 < default_seconds <= max_seconds and 0 < body_seconds must hold")
