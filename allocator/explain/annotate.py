"""Fills in the part of a decision that explains it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from allocator.domain import Decision
from allocator.entitlement.columns import NONE
from allocator.entitlement.model import Entitlement
from allocator.explain.after import build_after
from allocator.explain.tables import allocation_rows, drain_rows
from allocator.explain.waiting import waiting_rows


def annotate(entitlement: Entitlement, decision: Decision) -> Decision:
    """The decision with its rows `waiting`, `drains`, `allocations` and `warnings`; nothing that acts is touched.

    Parameters
    ----------
    entitlement
        What held before the decision.
    decision
        Starts, preemptions, promotions and renewals are read, and the solver's status. Its own warnings are kept.
    """
    after = build_after(entitlement, decision)
    return replace(
        decision,
        waiting=waiting_rows(entitlement, decision, after, (~after.running).nonzero()[0]),
        drains=drain_rows(entitlement, after),
        allocations=allocation_rows(entitlement, after),
        warnings=tuple(dict.fromkeys((*entitlement.warnings, *decision.warnings))),
    )


def annotate_marked(entitlement: Entitlement, decision: Decision) -> Decision:
    """The decision with no more explanation than the next snapshot needs: rows of the gangs that are entitled since another
    instant than the snapshot says, or no longer. Nothing that acts is touched."""
    since = entitlement.works.entitled_since
    changed = np.where(since > 0, since, NONE) != entitlement.columns.entitled_since
    if not changed.any():
        return decision
    after = build_after(entitlement, decision)
    return replace(decision, waiting=waiting_rows(entitlement, decision, after, (changed & ~after.running).nonzero()[0]))
