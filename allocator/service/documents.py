"""The documents that only the service speaks: a snapshot with its decision, a verdict, a problem."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from allocator.wire.decision_doc import DecisionDoc
from allocator.wire.snapshot_doc import SnapshotDoc


class PairDoc(Struct, forbid_unknown_fields=True, kw_only=True):
    """A snapshot and a decision."""

    snapshot: SnapshotDoc
    decision: DecisionDoc


class ViolationDoc(Struct, kw_only=True):
    """A rule that is broken."""

    rule: Annotated[str, Meta(description="its name")]
    subject: Annotated[str, Meta(description="whom it concerns")]
    detail: Annotated[str, Meta(description="what is wrong")]


class ScoreDoc(Struct, kw_only=True):
    """The score of a decision, recomputed."""

    total: Annotated[float, Meta(description="GPU-seconds")]
    terms: Annotated[dict[str, float], Meta(description="GPU-seconds by term")]


class VerdictDoc(Struct, kw_only=True):
    """Whether a decision keeps every rule, and what it scores."""

    ok: Annotated[bool, Meta(description="true where no rule is broken")]
    violations: Annotated[list[ViolationDoc], Meta(description="every broken rule, in the order of the rules")]
    score: ScoreDoc


class StateDoc(Struct, kw_only=True):
    """The state of the service."""

    status: Annotated[str, Meta(description="ok, starting or stopping")]


class IssueDoc(Struct, kw_only=True, omit_defaults=True):
    """One problem of the input, in the words of the command line."""

    path: Annotated[str, Meta(description="a JSON path; of a parameter its name")]
    problem: Annotated[str, Meta(description="what is wrong")]
    remedy: Annotated[str, Meta(description="what would be valid")]
    document: Annotated[str | None, Meta(description="snapshot or decision, where the body holds both")] = None


class ProblemDoc(Struct, kw_only=True, omit_defaults=True):
    """Why a call was refused (RFC 9457)."""

    type: Annotated[str, Meta(description="what kind of problem: a URN that stays the same")]
    title: Annotated[str, Meta(description="the kind in words")]
    status: Annotated[int, Meta(description="the HTTP status")]
    detail: Annotated[str, Meta(description="what to know about this very case")]
    instance: Annotated[str, Meta(description="identifies the call in the log")]
    issues: Annotated[list[IssueDoc], Meta(description="every problem of the input")] = []


View = dict[str, Any]
"""What `explain` gives: plain data whose members depend on what is explained."""
