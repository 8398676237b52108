"""From JSON to the snapshot: one typed pass; only a document with problems is read a second time, to name them all."""

from __future__ import annotations

import logging
from dataclasses import replace
from fractions import Fraction
from os import PathLike
from typing import Any

import msgspec

from allocator.domain import Snapshot, SnapshotError
from allocator.wire.consistency import check_consistency
from allocator.wire.draft import Draft
from allocator.wire.magnitude import check_magnitude
from allocator.wire.memory import collector_paused
from allocator.wire.requests import Requests, canonical_raw, reject
from allocator.wire.runs import check_runs
from allocator.wire.salvage import Unreadable, judge_unreadable, salvage
from allocator.wire.snapshot_doc import SnapshotDoc, TopologyDoc, WorkloadDoc
from allocator.wire.source import plain, read_bytes, refuse_syntax

logger = logging.getLogger(__name__)

_DECODER = msgspec.json.Decoder(SnapshotDoc)


def load_snapshot(source: str | PathLike[str] | bytes) -> Snapshot:
    """Read a snapshot from a file, or from its bytes; gzip is recognised by its first bytes.

    Raises
    ------
    SnapshotError
        With every issue, if the document is refused as a whole.
    """
    return decode_snapshot(read_bytes(source))


def decode_snapshot(data: bytes) -> Snapshot:
    """Decode a snapshot, plain or gzip-compressed, into canonical form.

    Waiting workloads that ask for something impossible are in `rejected`; everything else that is wrong refuses the document.

    Raises
    ------
    SnapshotError
        With every issue of the document, not the first.
    """
    data = plain(data)
    try:
        with collector_paused():
            return _decode(data)
    except RecursionError as error:
        refuse_syntax(data, error)


def _decode(data: bytes) -> Snapshot:
    draft, unreadable = _read(data)
    check_consistency(draft)
    check_runs(draft)
    requests = Requests(draft)
    judge_unreadable(draft, unreadable, requests)
    _judge_waiting(draft, requests)
    _check_rejected(draft)
    check_magnitude(draft)
    if draft.issues:
        raise SnapshotError(draft.issues + draft.rejections)
    logger.debug("%d workloads decoded, %d rejected", len(draft.doc.workloads), len(draft.rejected))
    return _to_domain(draft)


def _read(data: bytes) -> tuple[Draft, Unreadable]:
    """The draft: by one typed pass if the document has no problem of its own, else piece by piece."""
    try:
        return Draft(doc=_DECODER.decode(data)), []
    except msgspec.ValidationError:
        return salvage(data)
    except msgspec.DecodeError as error:
        refuse_syntax(data, error)


def _judge_waiting(draft: Draft, requests: Requests) -> None:
    """Move the waiting workloads whose requests cannot be met from the document to the rejected ones."""
    sound: list[WorkloadDoc] = []
    for work in draft.doc.workloads:
        if work.run is None and (findings := requests.findings(work)):
            reject(draft, work.id, findings, canonical_raw(msgspec.json.encode(work)))
        else:
            sound.append(work)
    draft.doc.workloads = sound
    draft.positions.pop("workloads", None)


def _check_rejected(draft: Draft) -> None:
    """Ensures that no rejected workload shares its id with another one that could not be read."""
    seen = {work.id for work in draft.doc.workloads}
    for rejection in draft.rejected:
        if rejection.workload in seen:
            draft.refuse("$.workloads", f"the id {rejection.workload!r} is given twice", "every id may stand here once")
        seen.add(rejection.workload)


def _to_domain(draft: Draft) -> Snapshot:
    """The canonical snapshot. Struct and dataclass share their field names, so the conversion is one call."""
    doc = draft.doc
    for work in doc.workloads:
        settle(work)
    snapshot: Snapshot = msgspec.convert(doc, Snapshot, from_attributes=True, dec_hook=exact_fraction)
    return replace(snapshot, rejected=tuple(draft.rejected)).canonical()


def settle(work: WorkloadDoc) -> None:
    """Give maps a fixed order, and an absent wish its empty form."""
    if work.topology is None:
        work.topology = TopologyDoc()
    if len(work.node_labels) > 1:
        work.node_labels = dict(sorted(work.node_labels.items()))
    work.exclude_nodes = tuple(sorted(set(work.exclude_nodes)))
    for held in (work.run, work.stopped):
        if held is not None and held.placement and len(held.placement) > 1:
            held.placement = dict(sorted(held.placement.items()))


def exact_fraction(kind: type, value: Any) -> Any:
    """A share or weight exactly as its shortest decimal text says, not as its binary neighbour."""
    if kind is Fraction:
        return exact(value)
    raise NotImplementedError(kind)


def exact(value: float) -> Fraction:
    """The fraction of a number's shortest decimal text."""
    return Fraction(int(value)) if value == int(value) else Fraction(repr(value))
