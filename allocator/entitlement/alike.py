"""Workloads that may start in the same ways: what is true of one of them in a state is true of all."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from allocator.entitlement.model import Entitlement
from allocator.entitlement.tree import frozen
from allocator.entitlement.waterfill import SAFE
from allocator.topology import BoolArray, IntArray, once


@once
def start_classes(ent: Entitlement) -> IntArray:
    """A number for each workload, shape (num_workloads,), read-only.

    Equal for workloads that ask the same of the nodes, of the same leaf, with the same promise and claim. They differ in
    submit time, costs and what they have been through: in their rank, that is.
    """
    works = ent.works
    size = len(works.leaf)
    own = np.full(size, -1, dtype=np.int64)
    own[list(ent.own_limit)] = list(ent.own_limit)
    return frozen(
        number_classes(
            works.request, works.leaf, works.promise, works.promise_cost, works.prepaid, works.express, works.entitled, own,
            _users(ent), works.unallocated, ent.columns.runs_unfunded,
        )
    )  # fmt: skip


def number_classes(*columns: IntArray | BoolArray) -> IntArray:
    """A number for each row, equal where all columns are equal, in their lexicographic order."""
    code, most = np.zeros(len(columns[0]), dtype=np.int64), 0
    for column in columns if len(code) else ():
        low, high = int(column.min()), int(column.max())
        if low == high:
            continue
        value, span = column.astype(np.int64) - low, high - low + 1
        if (most + 1) * span >= SAFE:
            code, value = _dense(code), _dense(value)
            most, span = int(code.max()), int(value.max()) + 1
        code, most = code * span + value, (most + 1) * span - 1
    return _dense(code)


def _dense(code: IntArray) -> IntArray:
    return np.unique(code, return_inverse=True)[1].astype(np.int64)


def number_rows(columns: Sequence[IntArray | BoolArray]) -> tuple[IntArray, IntArray]:
    """The numbers of `number_classes`, and the first row of each number."""
    code = number_classes(*columns)
    return code, np.unique(code, return_index=True)[1]


def _users(ent: Entitlement) -> IntArray:
    """A number for the user of each candidate of the express lane, which counts by user; -1 for all others."""
    user = np.full(len(ent.works.leaf), -1, dtype=np.int64)
    known: dict[str | None, int] = {}
    for row in ent.works.express.nonzero()[0].tolist():
        user[row] = known.setdefault(ent.snapshot.workloads[row].user, len(known))
    return user
