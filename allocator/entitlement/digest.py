"""The digest of the snapshot of an epoch, worked out once: a decision carries it, and the verifier compares it."""

from __future__ import annotations

from allocator.entitlement.model import Entitlement
from allocator.topology import once


@once
def digest_of(ent: Entitlement) -> str:
    """The digest of the snapshot, see `allocator.wire.snapshot_digest`."""
    return ent.texts.digest(ent.snapshot)
