"""All edits of a variant carried out on a trace, in one order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
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

Step = Callable[[Trace], Trace]

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
        With every edit that does not fit the trace.
    """
    issues: list[Issue] = []
    for step in _steps(variant, seed):
        try:
            trace = step(trace)
        except SnapshotError as error:
            issues += error.issues
    if issues:
        raise SnapshotError(issues)
    return replace(trace, policy=_policy(trace.policy, variant.raw.get("policy", {})))


def _steps(variant: Variant, seed: int) -> Iterator[Step]:
    """The edits in their order."""
    edits = variant.edits
    yield from (partial(edit_jobs, doc=doc, seed=seed, place=f"jobs[{at}]") for at, doc in enumerate(edits.jobs))
    if edits.load is not None:
        yield partial(set_load, load=edits.load, seed=seed, place="load")
    yield from (partial(remove_nodes, doc=doc, place=f"remove[{at}]") for at, doc in enumerate(edits.remove))
    yield from (partial(add_nodes, doc=doc, place=f"add[{at}]") for at, doc in enumerate(edits.add))
    yield from (partial(fail_nodes, doc=doc, place=f"fail[{at}]") for at, doc in enumerate(edits.fail))
    yield from (partial(service_nodes, doc=doc, place=f"maintenance[{at}]") for at, doc in enumerate(edits.maintenance))
    yield from (partial(edit_budgets, edit=change) for change in variant.budgets)


def checked(trace: Trace, variant: Variant, seed: int) -> list[Issue]:
    """What is wrong with the edits on this trace, or with the trace that they make."""
    try:
        decode_trace(encode_trace(edited(trace, variant, seed)))
    except SnapshotError as error:
        issues = [replace(issue, path=f"variant {variant.name}: {issue.path}") for issue in error.issues]
        left = len(issues) - MOST_ISSUES
        more = Issue(path=f"variant {variant.name}", problem=f"{left} more", remedy="correct these first")
        return [*issues[:MOST_ISSUES], *([more] if left > 0 else [])]
    return []


def _policy(policy: Policy, given: Mapping[str, Any]) -> Policy:
    """The policy with the fields that are given; the others stay."""
    document = msgspec.to_builtins(policy_doc(policy))
    whole = {
        **document,
        **{key: {**document[key], **value} if isinstance(value, dict) else value for key, value in given.items()},
    }
    found: Policy = msgspec.convert(msgspec.convert(whole, PolicyDoc), Policy, from_attributes=True, dec_hook=exact_fraction)
    return found
