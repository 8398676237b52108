"""Vertices of the budget tree and the usage that is held against them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """A vertex of the budget tree: program, project or researcher.

    `share` is relative to the siblings; `share_by_pool` overrides it for single pools. A vertex with `funds` false splits
    entitlement and orders work but holds no budget. `gpu_limit` bounds the GPUs held at once, charged or not, over all
    pools; `interactive_limit` the GPUs held by leases beyond their first min runtime. None: no limit.
    """

    id: str
    parent: str | None
    share: Fraction
    name: str | None = None
    share_by_pool: Mapping[str, Fraction] = field(default_factory=dict)
    funds: bool = True
    gpu_limit: int | None = None
    interactive_limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageRecord:
    """GPU time of work that has ended: `gpus` GPUs of one pool from `start` to `end` (seconds since the epoch)."""

    allocation: str
    pool: str
    gpus: int
    start: int
    end: int
    charged: bool = True
    id: str | None = None
