"""The snapshot that a decision leaves behind, written only if it can be read again."""

from __future__ import annotations

from dataclasses import replace

from allocator.domain import Snapshot, SnapshotError
from allocator.wire.decode import decode_snapshot
from allocator.wire.encode import encode_snapshot


def encode_successor(snapshot: Snapshot) -> bytes:
    """The snapshot after a decision as canonical JSON.

    A decision that no verifier has seen may put two gangs on one node or half a gang in another pool. What comes of it is
    refused here, and not by whoever reads it next.

    Raises
    ------
    SnapshotError
        With every contradiction; the paths are those of the snapshot after the decision.
    """
    data = encode_snapshot(snapshot)
    try:
        decode_snapshot(data)
    except SnapshotError as error:
        where, remedy = "after the decision: ", "verify the decision first"
        issues = [replace(issue, path=f"{where}{issue.path}", remedy=remedy) for issue in error.issues]
        raise SnapshotError(issues) from error
    return data
