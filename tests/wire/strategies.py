"""Snapshot documents at random, built so that they are valid: references are drawn from what exists, placements fit."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.wire.documents import NOW, Json

POOLS = ("h100", "b200")
LEVELS = ("cluster", "rack", "node")

ids = st.text(min_size=1, max_size=6)
instants = st.integers(0, 2 * NOW)
spans = st.integers(0, 10**6)
shares = st.one_of(st.integers(0, 10**6), st.floats(0, 10**6, allow_nan=False))
labels = st.dictionaries(st.sampled_from(["arch", "gen"]), st.sampled_from(["x", "y"]))


def maybe(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Json]:
    """An object in which every field may be absent."""
    return st.fixed_dictionaries({}, optional=fields)


nodes = st.builds(
    lambda some, more: some | more,
    st.fixed_dictionaries(
        {
            "pool": st.sampled_from(POOLS),
            "gpus": st.integers(1, 8),
            "domains": st.tuples(st.sampled_from(["east", "west"]), st.sampled_from(["r1", "r2"])).map(list),
        }
    ),
    maybe(
        labels=labels,
        state=st.sampled_from(["up", "drain", "down"]),
        drain_deadline=instants,
        reason=st.text(max_size=5),
        cpus=st.integers(64, 128),
        memory_gib=st.none() | st.integers(100, 200),
    ),
)

policies = maybe(
    window=st.integers(1, 10**6),
    horizon=st.integers(1, 10**5),
    half_life=st.none() | st.integers(1, 10**6),
    notice=spans,
    preempt_under_entitlement=st.booleans(),
    max_preemptions=st.none() | st.integers(0, 9),
    reserve_from=shares,
    express=maybe(gpus=st.integers(0, 16), pool_share=st.floats(0, 1)),
    weights=maybe(unfairness=st.floats(0, 10), idle=st.integers(0, 5)),
)

topologies = maybe(
    required=st.sampled_from(LEVELS),
    preferred=st.none() | st.sampled_from(LEVELS),
    segment=st.fixed_dictionaries({"level": st.sampled_from(LEVELS), "tasks": st.integers(1, 4)}),
)

extras = maybe(
    user=ids,
    topology=topologies,
    exclude_nodes=st.lists(ids, max_size=3),
    checkpoint_interval=st.none() | st.integers(1, 10**4),
    checkpoint_on_notice=st.booleans(),
    restart_time=spans,
    unfunded=st.sampled_from(["run", "wait"]),
    renew=st.booleans(),
    priority=st.integers(-5, 5),
    max_runtime=st.integers(1, 10**6),
    preempted=st.integers(0, 5),
    entitled_since=instants,
    stopped=st.fixed_dictionaries(
        {"at": instants, "pool": st.sampled_from(POOLS), "gpus": st.integers(0, 9), "charged": st.booleans()},
        optional={"placement": st.none() | st.dictionaries(ids, st.integers(1, 3), max_size=2)},
    ),
    **{"class": st.text(max_size=4)},
)


@st.composite
def documents(draw: st.DrawFn) -> Json:
    """A snapshot that is read without complaint; some of its waiting workloads are rejected by name."""
    cluster = [draw(nodes) | {"name": name} for name in draw(st.lists(ids, min_size=1, max_size=4, unique=True))]
    budgets = _budgets(draw)
    names = draw(st.lists(ids, max_size=6, unique=True))
    works = [_work(draw, name, [vertex["id"] for vertex in budgets]) for name in names]
    _place(draw, works, cluster)
    return {
        "version": 1,
        "now": NOW,
        "cluster": {"levels": list(LEVELS), "slowdown": {"rack": draw(st.floats(0, 1))}, "nodes": cluster},
        "budgets": budgets,
        "usage": [_record(draw) for _ in range(draw(st.integers(0, 3)))],
        "workloads": works,
        "reservations": [_reservation(draw, name) for name in draw(st.lists(ids, max_size=2, unique=True))],
        "policy": draw(policies),
    }


def _budgets(draw: st.DrawFn) -> list[Json]:
    """Parents come before their children, so that there is no cycle."""
    rows: list[Json] = []
    for key in draw(st.lists(ids, min_size=1, max_size=5, unique=True)):
        parent = draw(st.sampled_from([None, *(row["id"] for row in rows)]))
        more = maybe(
            name=st.none() | st.text(max_size=5),
            share_by_pool=st.dictionaries(st.sampled_from(POOLS), shares),
            funds=st.booleans(),
            gpu_limit=st.none() | st.integers(0, 99),
        )
        rows.append({"id": key, "parent": parent, "share": draw(shares)} | draw(more))
    return rows


def _work(draw: st.DrawFn, key: str, allocations: list[str]) -> Json:
    asked = {
        "id": key,
        "allocation": draw(st.sampled_from([*allocations, "unknown"])),
        "submit_time": draw(instants),
        "tasks": draw(st.integers(-1, 3)),
        "gpus_per_task": draw(st.integers(1, 10)),
        "min_runtime": draw(spans),
        "resumable": draw(st.booleans()),
        "pools": draw(st.lists(st.sampled_from([*POOLS, "v100"]), max_size=3, unique=True)),
        "node_labels": draw(labels),
    }
    return asked | draw(extras)


def _place(draw: st.DrawFn, works: list[Json], cluster: list[Json]) -> None:
    """Each node runs at most one of the workloads, one task of one GPU."""
    for work, node in zip(works, cluster, strict=False):
        if draw(st.booleans()):
            run = maybe(start_time=instants, granted_at=instants, protected_until=instants, express=st.booleans())
            work |= {"tasks": 1, "gpus_per_task": 1}
            work["run"] = {"placement": {node["name"]: 1}, "charged": draw(st.booleans())} | draw(run)


def _record(draw: st.DrawFn) -> Json:
    start, end = sorted([draw(instants), draw(instants)])
    record = {"allocation": draw(ids), "pool": draw(st.sampled_from(POOLS)), "gpus": draw(st.integers(0, 99))}
    return record | {"start": start, "end": end} | draw(maybe(charged=st.booleans()))


def _reservation(draw: st.DrawFn, key: str) -> Json:
    return {
        "workload": key,
        "pool": draw(st.sampled_from(POOLS)),
        "domain": draw(st.lists(ids, max_size=2)),
        "nodes": draw(st.integers(0, 9)),
        "start": draw(instants),
        "eligible_since": draw(instants),
        "bound": draw(instants),
        "waits_for": draw(st.lists(ids, max_size=2)),
    }
