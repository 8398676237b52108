"""Changes of budgets carried out: on a tree, on the snapshot that has it, and one after the other as a budget file has them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from allocator.domain import Allocation, Cluster, Issue, Snapshot, SnapshotError
from allocator.wire.budget_file import BudgetFile
from allocator.wire.changes import BudgetChange, ChangeKind, ChangeSet
from allocator.wire.shapes import nearest, show


def apply_changes(snapshot: Snapshot, changes: ChangeSet) -> Snapshot:
    """The snapshot as if the changes were in effect now, whatever their date.

    Work of an allocation that is removed stays in the snapshot: if it waits it cannot be decided, if it runs it runs on under
    a vertex of share zero.

    Raises
    ------
    SnapshotError
        With every change that does not fit the budgets of the snapshot.
    """
    return replace(snapshot, budgets=change_budgets(snapshot.budgets, changes, pools_of(snapshot.cluster))).canonical()


def pools_of(cluster: Cluster) -> list[str]:
    """The pools that a change may name."""
    return sorted({node.pool for node in cluster.nodes})


def change_budgets(
    budgets: Iterable[Allocation], changes: ChangeSet, pools: Sequence[str], path: str = "$"
) -> tuple[Allocation, ...]:
    """The tree after the changes; `path` is where the change set stands.

    Raises
    ------
    SnapshotError
        With every change that does not fit.
    """
    before = {vertex.id: vertex for vertex in budgets}
    issues = [
        issue
        for at, change in enumerate(changes.changes)
        for issue in (
            *_unknown(change, before, f"{path}.changes[{at}]"),
            *_unknown_pools(change, pools, f"{path}.changes[{at}]"),
        )
    ]
    if issues:
        raise SnapshotError(issues)
    after = dict(before)
    for change in changes.changes:
        if change.kind is ChangeKind.REMOVE:
            del after[change.id]
        else:
            after[change.id] = _changed(before.get(change.id), change)
    where = {change.id: f"{path}.changes[{at}]" for at, change in enumerate(changes.changes)}
    if issues := [*_lost_parents(after, where), *_cycles(after, changes, where)]:
        raise SnapshotError(issues)
    return tuple(after.values())


def trees_of(file: BudgetFile, pools: Sequence[str]) -> list[tuple[ChangeSet | None, tuple[Allocation, ...]]]:
    """Every tree of a budget file in the order of time: the first, and the one that each change set leaves.

    Raises
    ------
    SnapshotError
        With every change that does not fit the tree that it finds.
    """
    trees: list[tuple[ChangeSet | None, tuple[Allocation, ...]]] = [(None, file.budgets)]
    for at, changes in enumerate(file.change_sets):
        trees.append((changes, change_budgets(trees[-1][1], changes, pools, f"$.change_sets[{at}]")))
    return trees


def budgets_at(file: BudgetFile, instant: int, pools: Sequence[str]) -> tuple[ChangeSet | None, tuple[Allocation, ...]]:
    """The tree in force at an instant, and the change set that made it; None: it is the first. Raises as `trees_of`."""
    in_force = [
        (changes, tree)
        for changes, tree in trees_of(file, pools)
        if changes is None or changes.effective is None or changes.effective <= instant
    ]
    return in_force[-1]


def _changed(vertex: Allocation | None, change: BudgetChange) -> Allocation:
    values: dict[str, Any] = dict(change.values)
    if vertex is None:
        values["share_by_pool"] = _merged({}, values.get("share_by_pool", {}))
        return Allocation(id=change.id, **values)
    if "share_by_pool" in values:
        values["share_by_pool"] = _merged(vertex.share_by_pool, values["share_by_pool"])
    return replace(vertex, **values)


def _merged(shares: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Overrides by pool after the changes; None takes one away."""
    return {pool: share for pool, share in {**shares, **changes}.items() if share is not None}


def _unknown(change: BudgetChange, before: Mapping[str, Allocation], path: str) -> Iterator[Issue]:
    known = change.id in before
    if change.kind is ChangeKind.ADD and known:
        yield Issue(path=f"{path}.id", problem=f"{show(change.id)} exists already", remedy="leave add out to change it")
    elif change.kind is not ChangeKind.ADD and not known:
        remedy = f"{nearest(change.id, sorted(before))}; a new allocation needs add"
        yield Issue(path=f"{path}.id", problem=f"there is no allocation {show(change.id)}", remedy=remedy)


def _unknown_pools(change: BudgetChange, pools: Sequence[str], path: str) -> Iterator[Issue]:
    for pool in change.values.get("share_by_pool", {}):
        if pool not in pools:
            problem = f"there is no pool {show(pool)}"
            yield Issue(path=f"{path}.share_by_pool.{pool}", problem=problem, remedy=nearest(pool, pools))


def _lost_parents(after: Mapping[str, Allocation], where: Mapping[str, str]) -> Iterator[Issue]:
    """Every vertex has to hang under one that exists; `where` says where each id is changed."""
    for vertex in after.values():
        if vertex.parent is None or vertex.parent in after:
            continue
        if vertex.parent in where:
            problem = f"{show(vertex.id)} would lose its parent {show(vertex.parent)}"
            remedy = f"remove {show(vertex.id)} too, or give it another parent"
            yield Issue(path=where[vertex.parent], problem=problem, remedy=remedy)
        else:
            problem = f"there is no allocation {show(vertex.parent)}"
            yield Issue(
                path=f"{where.get(vertex.id, '$')}.parent", problem=problem, remedy=nearest(vertex.parent, sorted(after))
            )


def _cycles(after: Mapping[str, Allocation], changes: ChangeSet, where: Mapping[str, str]) -> Iterator[Issue]:
    """No vertex may hang under itself; only a change of parent can bring that about."""
    for change in changes.changes:
        if "parent" not in change.values:
            continue
        above = after[change.id].parent
        seen = {change.id}
        while above is not None and above in after and above not in seen:
            seen.add(above)
            above = after[above].parent
        if above == change.id:
            problem = f"{show(change.id)} would hang under itself"
            yield Issue(path=f"{where[change.id]}.parent", problem=problem, remedy="name a parent that is not below it")
