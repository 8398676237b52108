"""All edits of a variant carried out on a trace, in one order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from allocator.domain import Issue, Policy, SnapshotError
from allocator.domain.trace import Trace
from allocator.whatif.budgets import edit_budgets
from allocator.whatif.load import edit_jobs, set_load
from allocator.whatif.nodes import add_nodes, fail_nodes, remove_nodes, service_nodes
from allocator.whatif.scenario import Variant
from allocator.wire import decode_trace, encode_trace
from allocator.wire.decode import exact_fraction
from allocator.wire.encode import policy_doc
from allocator.wire.snapshot_doc import PolicyDoc

MOST_ISSUES = 5
"""A pool that is gone is missed by every job that names it; so many are told."""


def edited(trace: Trace, variant: Variant, seed: int) -> Trace:
    """The trace of a variant.

    First what is submitted changes, so that a load is that of the cluster as it was; then the cluster, then what happens to
    it, then budgets and policy.

    Parameters
    ----------
    seed
        For jobs that are thinned or repeated.

    Raises
    ------
    SnapshotError
        If an edit does not fit the trace.
    """
    edits = variant.edits
    for at, jobs in enumerate(edits.jobs):
        trace = edit_jobs(trace, jobs, seed, f"jobs[{at}]")
    if edits.load is not None:
        trace = set_load(trace, edits.load, seed, "load")
    trace = _each(trace, edits.remove, remove_nodes, "remove")
    trace = _each(trace, edits.add, add_nodes, "add")
    trace = _each(trace, edits.fail, fail_nodes, "fail")
    trace = _each(trace, edits.maintenance, service_nodes, "maintenance")
    for change in variant.budgets:
        trace = edit_budgets(trace, change)
    return replace(trace, policy=_policy(trace.policy, variant.raw.get("policy", {})))


def checked(trace: Trace, variant: Variant, seed: int) -> list[Issue]:
    """What is wrong with the edits on this trace: of the first that does not fit, or of the trace that they make."""
    try:
        decode_trace(encode_trace(edited(trace, variant, seed)))
    except SnapshotError as error:
        issues = [replace(issue, path=f"variant {variant.name}: {issue.path}") for issue in error.issues]
        left = len(issues) - MOST_ISSUES
        more = Issue(path=f"variant {variant.name}", problem=f"{left} more", remedy="correct these first")
        return [*issues[:MOST_ISSUES], *([more] if left > 0 else [])]
    return []


def _each(trace: Trace, docs: Sequence[Any], edit: Callable[[Trace, Any, str], Trace], name: str) -> Trace:
    for at, doc in enumerate(docs):
        trace = edit(trace, doc, f"{name}[{at}]")
    return trace


def _policy(policy: Policy, given: Mapping[str, Any]) -> Policy:
    """The policy with the fields that are given; the others stay."""
    document = msgspec.to_builtins(policy_doc(policy))
    whole = {
        **document,
        **{key: {**document[key], **value} if isinstance(value, dict) else value for key, value in given.items()},
    }
    found: Policy = msgspec.convert(msgspec.convert(whole, PolicyDoc), Policy, from_attributes=True, dec_hook=exact_fraction)
    return found
