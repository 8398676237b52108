"""The JSON edge: documents in, domain objects out, and back."""

from allocator.wire.decode import decode_snapshot, load_snapshot

__all__ = ["decode_snapshot", "load_snapshot"]
