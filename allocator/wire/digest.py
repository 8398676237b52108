"""What identifies the content of a snapshot, and the texts that it is made from."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from fractions import Fraction

import msgspec

from allocator.domain import Cluster, Snapshot

_LISTS = frozenset({"budgets", "nodes", "usage", "workloads"})
"""Fields with many parts, most of which the next snapshot has too."""


class Texts:
    """Lists of a snapshot and their parts as JSON text, each written once as long as the next snapshot holds the same object.

    Parts are immutable. Those of the last snapshot are kept, so that an identity stands for one object, and no others.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[object, bytes]] = {}

    def digest(self, snapshot: Snapshot) -> str:
        """See `snapshot_digest`; the lists of the snapshot stand in canonical order."""
        before, self._known = self._known, {}
        hasher = hashlib.sha256(self._object(replace(snapshot, rejected=()), before))
        for rejection in snapshot.rejected:
            hasher.update(b"\n" + (rejection.raw or rejection.workload.encode()))
        return f"sha256:{hasher.hexdigest()}"

    def _object(self, value: Snapshot | Cluster, before: Mapping[int, tuple[object, bytes]]) -> bytes:
        return b"{" + b",".join(self._members(value, before)) + b"}"

    def _members(self, value: Snapshot | Cluster, before: Mapping[int, tuple[object, bytes]]) -> Iterator[bytes]:
        """Every field with its name, in the order of the names."""
        for name in sorted(field.name for field in fields(value)):
            member = getattr(value, name)
            if name in _LISTS:
                text = self._list(member, before)
            else:
                text = self._object(member, before) if isinstance(member, Cluster) else _encoded(member)
            yield b'"' + name.encode() + b'":' + text

    def _list(self, parts: tuple[object, ...], before: Mapping[int, tuple[object, bytes]]) -> bytes:
        """The text of a list: that of before, where it is the very same list, or put together from its parts."""
        if known := before.get(id(parts)):
            self._known[id(parts)] = known
            return known[1]
        texts = [before.get(id(part)) or (part, _encoded(part)) for part in parts]
        self._known.update(zip(map(id, parts), texts, strict=True))
        whole = b"[" + b",".join([text for _, text in texts]) + b"]"
        self._known[id(parts)] = parts, whole
        return whole


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
