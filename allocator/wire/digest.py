"""What identifies the content of a snapshot, and the texts that it is made from."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from fractions import Fraction
from functools import cache
from operator import is_
from typing import TYPE_CHECKING

import msgspec

from allocator.domain import Cluster, Snapshot

if TYPE_CHECKING:
    from hashlib import _Hash as HASH

_LISTS = frozenset({"budgets", "nodes", "usage", "workloads"})
"""Fields with many parts, most of which the next snapshot has too."""

_STEM = ("budgets", "cluster")
"""The first fields in the order of the names: they seldom change, so that what has been hashed of them is kept."""


@dataclass(slots=True)
class _Known:
    """A member, its text and, where it is a list, the text of each part by the identity of the part."""

    value: object
    text: bytes
    parts: dict[int, tuple[object, bytes]] = field(default_factory=dict)


class Texts:
    """Members of a snapshot and their parts as JSON text, each written once as long as the next snapshot holds the same object.

    Lists of the first snapshot are written in one piece, since most have no second; from that one on their parts are known.
    Parts are immutable. Those of the last snapshot are kept, so that an identity stands for one object, and no others.
    """

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}
        self._stem: tuple[tuple[object, ...], HASH] | None = None

    def digest(self, snapshot: Snapshot) -> str:
        """See `snapshot_digest`; the lists of the snapshot stand in canonical order."""
        hasher = self._hash_of_stem(snapshot).copy()
        for name in _names(Snapshot)[len(_STEM) :]:
            hasher.update(b',"' + name.encode() + b'":')
            hasher.update(self._member(name, () if name == "rejected" else getattr(snapshot, name)))
        hasher.update(b"}")
        for rejection in snapshot.rejected:
            hasher.update(b"\n" + (rejection.raw or rejection.workload.encode()))
        return f"sha256:{hasher.hexdigest()}"

    def _hash_of_stem(self, snapshot: Snapshot) -> HASH:
        """What has been hashed once the first fields have been."""
        values = tuple(getattr(snapshot, name) for name in _STEM)
        if self._stem is None or not all(map(is_, self._stem[0], values)):
            members = (
                b'"' + name.encode() + b'":' + self._member(name, value) for name, value in zip(_STEM, values, strict=True)
            )
            self._stem = values, hashlib.sha256(b"{" + b",".join(members))
        return self._stem[1]

    def _member(self, name: str, value: object) -> bytes:
        """The text of a field: that of before where it holds the very same object."""
        known = self._known.get(name)
        if known is not None and known.value is value:
            return known.text
        if isinstance(value, Cluster):
            members = (b'"' + name.encode() + b'":' + self._member(name, getattr(value, name)) for name in _names(Cluster))
            found = _Known(value, b"{" + b",".join(members) + b"}")
        elif name in _LISTS and known is not None:
            found = _list(value, known.parts)  # type: ignore[arg-type]  # a tuple
        else:
            found = _Known(value, _encoded(value))
        self._known[name] = found
        return found.text


def _list(value: tuple[object, ...], before: Mapping[int, tuple[object, bytes]]) -> _Known:
    """A list, put together from its parts."""
    parts = {id(part): before.get(id(part)) or (part, _encoded(part)) for part in value}
    # Where an object stands twice, the texts are fewer than the parts.
    texts = parts.values() if len(parts) == len(value) else map(parts.__getitem__, map(id, value))
    return _Known(value, b"[" + b",".join([text for _, text in texts]) + b"]", parts)


@cache
def _names(kind: type[Snapshot] | type[Cluster]) -> tuple[str, ...]:
    """The fields in the order of their names."""
    return tuple(sorted(own.name for own in fields(kind)))


def snapshot_digest(snapshot: Snapshot) -> str:
    """What identifies the content of a snapshot, however it was written: order of lists and keys, defaults, compression.

    It is the SHA-256 of every field with keys and lists sorted. Messages about rejected workloads are left out.
    """
    return Texts().digest(snapshot.canonical())


def _plain(value: object) -> object:
    """Encode what JSON has no word for."""
    if isinstance(value, Fraction):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise NotImplementedError(type(value))


_encoded = msgspec.json.Encoder(order="sorted", enc_hook=_plain).encode
