"""The association tree as a budget tree: accounts fund, users under them split and order.

The share of a vertex is its Fairshare, the `gpu_limit` its `GrpTRES=gres/gpu`. The root account is the tree itself: its
accounts stand at the top. A user of an account is the leaf `account/user`. Limits in GPU-minutes are not read: budgets come
from shares.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from allocator.dispatch.slurm import values
from allocator.domain import Allocation

ROOT = "root"


@dataclass(frozen=True, slots=True)
class Association:
    """One row: an account where `user` is empty, else a user of one."""

    account: str
    user: str
    parent: str
    share: int
    gpu_limit: int | None


def read_tree(text: str) -> tuple[Allocation, ...]:
    """The tree from `sacctmgr -nP list associations tree format=account,user,parentname,share,grptres`."""
    rows = (line.split("|") for line in text.splitlines() if line.count("|") >= 4)
    return _tree(Association(row[0].strip(), row[1], row[2], _share(row[3]), _limit(row[4])) for row in rows)


def read_associations(records: Iterable[Mapping[str, Any]]) -> tuple[Allocation, ...]:
    """The tree from `sacctmgr --json list associations` of newer versions."""
    return _tree(
        Association(
            str(record["account"]),
            values.text(record.get("user")),
            values.text(record.get("parent_account")),
            _share(record.get("shares_raw")),
            _group_limit(record),
        )
        for record in records
    )


def _share(value: Any) -> int:
    """A share; `parent`, which Slurm writes as a huge number, counts like its siblings."""
    found = values.number(value)
    return found if found is not None and 0 <= found < 2**31 - 1 else 1


def _limit(text: str) -> int | None:
    found = values.tres(text, "gres/gpu")
    return int(found) if found is not None and found.isdigit() else None


def _group_limit(record: Mapping[str, Any]) -> int | None:
    rows = ((record.get("max") or {}).get("tres") or {}).get("total") or []
    found = [row for row in rows if row.get("type") == "gres" and row.get("name") == "gpu"]
    return values.number(found[0].get("count")) if found else None


def _tree(rows: Iterable[Association]) -> tuple[Allocation, ...]:
    """One vertex per account and per user of it; of several rows for one vertex (partitions, clusters) the first counts."""
    vertices: dict[str, Allocation] = {}
    for vertex in _vertices(rows):
        vertices.setdefault(vertex.id, vertex)
    return tuple(sorted(vertices.values(), key=lambda vertex: vertex.id))


def _vertices(rows: Iterable[Association]) -> Iterator[Allocation]:
    for row in rows:
        share, limit = Fraction(row.share), row.gpu_limit
        if row.user:
            parent = None if row.account == ROOT else row.account
            yield Allocation(id=f"{row.account}/{row.user}", parent=parent, share=share, funds=False, gpu_limit=limit)
        elif row.account != ROOT:
            parent = None if row.parent in ("", ROOT) else row.parent
            yield Allocation(id=row.account, parent=parent, share=share, gpu_limit=limit)
