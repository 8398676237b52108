"""The JSON edge: documents in, domain objects out, and back."""

from allocator.wire.decisions import decision_digest, decode_decision, encode_decision, is_other_snapshot, load_decision
from allocator.wire.decode import decode_snapshot, load_snapshot
from allocator.wire.digest import Texts, snapshot_digest
from allocator.wire.encode import encode_snapshot
from allocator.wire.request import decode_request
from allocator.wire.schema import decision_schema, snapshot_schema, trace_schema
from allocator.wire.successor import encode_successor
from allocator.wire.traces import decode_trace, encode_trace, load_named_trace, load_trace

__all__ = [
    "Texts",
    "decision_digest",
    "decision_schema",
    "decode_decision",
    "decode_request",
    "decode_snapshot",
    "decode_trace",
    "encode_decision",
    "encode_snapshot",
    "encode_successor",
    "encode_trace",
    "is_other_snapshot",
    "load_decision",
    "load_named_trace",
    "load_snapshot",
    "load_trace",
    "snapshot_digest",
    "snapshot_schema",
    "trace_schema",
]
