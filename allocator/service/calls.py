"""What a worker does for a call: bytes in, bytes out. Knows no HTTP but the status."""

from __future__ import annotations

import gzip
import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import Raw, Struct

from allocator.domain import Decision, Issue, OversizedError, Snapshot, SnapshotError
from allocator.service.problems import MEDIA_TYPE, Kind, RefusedError, bad_document, inside, problem_body
from allocator.wire import (
    decision_digest,
    decode_decision,
    decode_snapshot,
    encode_decision,
    encode_successor,
    is_other_snapshot,
    snapshot_digest,
)
from allocator.wire.shapes import nearest, show
from allocator.wire.source import plain, refuse, refuse_syntax

logger = logging.getLogger(__name__)

JSON = "application/json"
TEXT = "text/plain; charset=utf-8"

END_SHARE = 0.95
"""Of the time that is left, the engines get this part; the rest is for writing the answer."""

LEAST_SHARE = 0.1
"""Of the time budget, this part at least is left for the engines, however long reading took."""

_LEAST_GZIP = 1_024
"""Smaller answers are not worth compressing."""

_PAIR = ("snapshot", "decision")


class Call(Struct, kw_only=True):
    """One call: what is to be done, the body as it was sent, and the options.

    `seconds` is what is left of the time budget when the worker gets the call; `instance` identifies it.
    """

    operation: str
    body: bytes
    instance: str
    seconds: float
    max_document: int
    engine: str = "portfolio"
    seed: int = 0
    gap: float = 0.0
    advance: int = 0
    workload: str | None = None
    allocation: str | None = None
    as_text: bool = False
    compress: bool = False


class Reply(Struct, kw_only=True):
    """The answer: status, body and headers; `facts` are for log and metrics. After a `last` one the worker ends."""

    status: int
    body: bytes
    headers: dict[str, str]
    facts: dict[str, Any] = {}
    last: bool = False


@dataclass(frozen=True, slots=True)
class Epoch:
    """What is to be recorded of a decision: its instant, the digest of the snapshot, and both documents as JSON."""

    now: int
    digest: str
    snapshot: bytes
    decision: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What an operation gives, before it becomes a reply."""

    body: bytes
    epoch: Epoch | None = None
    media_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)


def reply_to(call: Call, keep: Callable[[Epoch], None] | None = None) -> Reply:
    """Do what a call asks for. Whatever goes wrong becomes a problem document.

    Parameters
    ----------
    keep
        Records a decision before it is handed out; None records nothing.
    """
    begun = time.monotonic()
    try:
        answer = _OPERATIONS[call.operation](call, begun)
        if keep is not None and answer.epoch is not None:
            keep(answer.epoch)
        reply = _reply(call, answer)
    except OversizedError as error:
        reply = _refuse(call, RefusedError(Kind.TOO_LARGE, str(error), error.issues))
    except SnapshotError as error:
        reply = _refuse(call, bad_document(error.issues))
    except MemoryError:
        logger.error("a worker ran out of memory at call %s", call.instance)
        detail = "the document needs more memory than this service gives to one call"
        reply = _refuse(call, RefusedError(Kind.TOO_LARGE, detail))
        reply.last = True
    except Exception:
        logger.exception("call %s failed", call.instance)
        detail = "this is no fault of the request; please report it with the document and the instance"
        reply = _refuse(call, RefusedError(Kind.INTERNAL, detail))
    reply.facts["seconds"] = round(time.monotonic() - begun, 6)
    return reply


def _reply(call: Call, answer: Answer) -> Reply:
    headers = {"content-type": answer.media_type, **answer.headers}
    body = answer.body
    if call.compress and len(body) >= _LEAST_GZIP:
        body = gzip.compress(body, compresslevel=5, mtime=0)
        headers["content-encoding"] = "gzip"
    return Reply(status=200, body=body, headers=headers, facts=dict(answer.facts))


def _refuse(call: Call, refusal: RefusedError) -> Reply:
    body = problem_body(refusal, call.instance)
    return Reply(
        status=refusal.kind.status,
        body=body,
        headers={"content-type": MEDIA_TYPE},
        facts={"problem": refusal.kind.value[0], "issues": len(refusal.issues)},
    )


def _decide(call: Call, begun: float) -> Answer:
    text = plain(call.body, call.max_document)
    snapshot = decode_snapshot(text)
    from allocator.engine import allocate

    left = max(call.seconds - (time.monotonic() - begun), LEAST_SHARE * call.seconds)
    decision = allocate(snapshot, time_limit=END_SHARE * left, engine=call.engine, seed=call.seed, gap=call.gap)
    digest = decision_digest(decision)
    headers = {"allocator-snapshot": decision.snapshot, "allocator-decision": digest}
    body = encode_decision(decision)
    epoch = Epoch(decision.now, decision.snapshot, text, body)
    return Answer(body=body, epoch=epoch, headers=headers, facts=_facts(decision, digest))


def _verify(call: Call, begun: float) -> Answer:
    snapshot, decision = _pair(call)
    from allocator.verify import verify

    verdict = verify(snapshot, decision)
    return Answer(body=_json(verdict.as_dict()), facts={"ok": verdict.ok, "broken": list(verdict.broken)})


def _apply(call: Call, begun: float) -> Answer:
    snapshot, decision = _pair(call)
    from allocator import transition

    after = transition.apply(snapshot, decision, call.advance)
    other = is_other_snapshot(snapshot, decision)  # no error: applying a decision twice is legal
    headers = {"allocator-snapshot": snapshot_digest(after), **({"allocator-warning": _ascii(other)} if other else {})}
    return Answer(body=encode_successor(after), headers=headers)


def _explain(call: Call, begun: float) -> Answer:
    snapshot, decision = _pair(call)
    if other := is_other_snapshot(snapshot, decision):
        refuse("decision: $.snapshot", other, "give the snapshot it was made for")
    from allocator.entitlement import entitle
    from allocator.explain import allocation_view, epoch_view, workload_view

    ent = entitle(snapshot)
    if call.workload is not None:
        view = workload_view(ent, decision, call.workload)
    elif call.allocation is not None:
        view = allocation_view(ent, decision, call.allocation)
    else:
        view = epoch_view(ent, decision)
    if not call.as_text:
        return Answer(body=_json(view))
    from allocator.explain.render import as_text

    return Answer(body=as_text(view).encode(), media_type=TEXT)


_OPERATIONS: Mapping[str, Callable[[Call, float], Answer]] = {
    "decisions": _decide,
    "verify": _verify,
    "apply": _apply,
    "explain": _explain,
}


def _pair(call: Call) -> tuple[Snapshot, Decision]:
    """The snapshot and the decision of a body; the issues of both at once."""
    parts = _members(plain(call.body, call.max_document))
    issues = [Issue(path=f"$.{name}", problem="the field is missing", remedy="give it") for name in _PAIR if name not in parts]
    unknown = [name for name in parts if name not in _PAIR]
    issues += [Issue(path="$", problem=f"unknown field {show(name)}", remedy=nearest(name, _PAIR)) for name in unknown]
    found: list[Any] = []
    for name, decode in (("snapshot", decode_snapshot), ("decision", decode_decision)):
        try:
            found.append(decode(bytes(parts[name])) if name in parts else None)
        except SnapshotError as error:
            issues += inside(name, error.issues)
    if issues:
        raise SnapshotError(issues)
    return found[0], found[1]


def _members(data: bytes) -> dict[str, Raw]:
    """The members of the object, undecoded; the whole text is checked to be JSON."""
    try:
        return msgspec.json.decode(data, type=dict[str, Raw])
    except msgspec.ValidationError:
        refuse("$", "the document is not a JSON object", "give one object with snapshot and decision")
    except (msgspec.DecodeError, RecursionError) as error:
        refuse_syntax(data, error)


def _facts(decision: Decision, digest: str) -> dict[str, Any]:
    """What log and metrics say of a decision."""
    stops = Counter(row.reason.value for row in decision.preemptions)
    return {
        "snapshot": decision.snapshot,
        "decision": digest,
        "rung": decision.solver.rung,
        "engine": decision.solver.engine,
        "solver_status": decision.solver.status,
        "gap": decision.solver.gap,
        "objective_gpu_seconds": decision.solver.objective / 1000,
        "starts": len(decision.starts),
        "preemptions": dict(sorted(stops.items())),
        "waiting": len(decision.waiting),
        "contract_broken": len(decision.contract_broken),
        "steps": {name: round(seconds, 6) for name, seconds in decision.timing.items() if name != "total_seconds"},
    }


def _ascii(text: str) -> str:
    """A text that may stand in a header."""
    return json.dumps(text)[1:-1][:500]


def _json(value: Any) -> bytes:
    return msgspec.json.encode(value) + b"\n"
