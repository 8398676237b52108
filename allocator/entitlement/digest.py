"""The digest of the snapshot of an epoch, worked out once: a decision carries it, and the verifier compares it."""

from __future__ import annotations

from allocator.entitlement.model import Entitlement
from allocator.topology import once
from allocator.wire import snapshot_digest


@once
def digest_of(ent: Entitlement) -> str:
    """The digest of the snapshot, see `snapshot_digest`."""
    return snapshot_digest(ent.snapshot)
