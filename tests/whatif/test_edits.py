"""Edits carried out on a trace."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocator.domain import SnapshotError
from allocator.domain.trace import Maintenance, Outage, Revision, Trace
from allocator.generate.drawn_days import draw_days
from allocator.generate.offered import offered_load, scale_load
from allocator.whatif.edits import checked, edited
from tests.builders import HOUR, budget, node
from tests.replay.play import START, job
from tests.whatif.small import DAY, small_trace, variant


def edit(folder: Path, trace: Trace | None = None, **edits: Any) -> Trace:
    return edited(trace or small_trace(), variant(folder, **edits), 0)


def refused(folder: Path, trace: Trace | None = None, **edits: Any) -> list[str]:
    return [str(issue) for issue in checked(trace or small_trace(), variant(folder, **edits), 0)]


# --- nodes ---------------------------------------------------------------------------------------------------------------


def test_nodes_go_with_all_that_happens_to_them(tmp_path: Path) -> None:
    lost = Outage(node="n1", start=START, end=START + HOUR)
    plan = Maintenance(node="n1", announced=START, deadline=START + HOUR, end=START + 2 * HOUR)
    trace = small_trace(outages=(lost,), maintenance=(plan,))
    found = edit(tmp_path, trace, remove=[{"domain": "r1"}])
    assert [each.name for each in found.cluster.nodes] == ["n3", "n4"]
    assert (found.outages, found.maintenance) == ((), ())
    kept = edit(tmp_path, trace, remove=[{"pool": "h100", "domain": "r2", "nodes": 1}])
    assert [each.name for each in kept.cluster.nodes] == ["n1", "n2", "n4"]
    assert kept.outages == (lost,)


def test_a_pool_that_is_gone_is_forgotten_by_jobs_that_have_another(tmp_path: Path) -> None:
    both = job("both", pools=("b200", "h100"), exclude_nodes=("m1",))
    trace = small_trace(hours=96)
    nodes = (*trace.cluster.nodes, node("m1", "m", pool="b200"))
    trace = replace(trace, cluster=replace(trace.cluster, nodes=nodes), jobs=(both,))
    found = edit(tmp_path, trace, remove=[{"pool": "b200"}])
    assert (found.jobs[0].workload.pools, found.jobs[0].workload.exclude_nodes) == (("h100",), ())
    only = replace(trace, jobs=tuple(job(f"o{n}", pools=("b200",)) for n in range(9)))
    told = refused(tmp_path, only, remove=[{"pool": "b200"}])
    assert len(told) == 6
    assert all(each.startswith("variant v") for each in told)
    assert "b200" in told[0]
    assert "4 more" in told[-1]


def test_bought_racks_hang_below_the_top_under_new_names(tmp_path: Path) -> None:
    found = edit(tmp_path, add=[{"architecture": "gb300", "racks": 9}, {"like": "n1", "racks": 1}, {"like": "n2", "nodes": 1}])
    bought = [each for each in found.cluster.nodes if each.pool == "gb300"]
    assert (len(bought), {each.gpus for each in bought}) == (9 * 18, {4})
    assert bought[0].domains == ("c", "gb300-new-unit1/rack1")
    assert bought[-1].domains == ("c", "gb300-new-unit2/rack1")
    like = [each for each in found.cluster.nodes if each.name.startswith("h100-new")]
    assert [(each.name, each.domains[-1]) for each in like] == [
        ("h100-new-001", "h100-new-unit1/rack1"), ("h100-new-002", "h100-new-unit1/rack1"),
        ("h100-new1-001", "h100-new1-unit1/rack1"),
    ]  # fmt: skip
    assert not checked(small_trace(), variant(tmp_path, add=[{"architecture": "b300", "nodes": 3, "pool": "h100"}]), 0)


def test_a_domain_dies_from_a_moment_on(tmp_path: Path) -> None:
    found = edit(tmp_path, fail=[{"domain": "r2", "at": "1d", "lasts": "6h"}, {"node": "n1", "at": "3d"}])
    assert [(each.node, each.start - START, each.end - START) for each in found.outages] == [
        ("n3", DAY, DAY + 6 * HOUR), ("n4", DAY, DAY + 6 * HOUR), ("n1", 3 * DAY, 4 * DAY),
    ]  # fmt: skip


def test_maintenance_goes_batch_by_batch(tmp_path: Path) -> None:
    plan = [{"pool": "h100", "at": "1d", "lasts": "2h", "notice": "2d", "batch": 2, "drain": False}]
    found = edit(tmp_path, maintenance=plan)
    assert [(each.announced - START, (each.deadline or 0) - START, each.drain) for each in found.maintenance] == [
        (0, DAY, False), (0, DAY, False), (0, DAY + 2 * HOUR, False), (0, DAY + 2 * HOUR, False),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("edits", "words"),
    [
        ({"remove": [{"node": "n9"}]}, "remove[0].node: there is no node 'n9'"),
        ({"remove": [{"pool": "h200"}]}, 'did you mean "h100"?'),
        ({"remove": [{"pool": "h100", "nodes": 5}]}, "5 of 4 nodes"),
        ({"remove": [{"pool": "h100"}]}, "the cluster is empty"),
        ({"add": [{"like": "n9", "nodes": 1}]}, "add[0].like: there is no node 'n9'"),
        ({"fail": [{"node": "n1", "at": "9d"}]}, "nothing dies inside the trace"),
        ({"load": 0}, "load: a load of nothing"),
        ({"load": 0.01}, "campaigns alone"),
        ({"jobs": [{"where": {"class": "none"}, "times": 2}]}, "jobs[0].where: no job of the trace fits"),
        ({"jobs": [{"set": {"allocation": "z"}}]}, "unknown allocation"),
        ({"budgets": [{"author": "a", "reason": "r", "at": "9d", "changes": [{"id": "a", "share": 1}]}]}, "the trace ends"),
        ({"budgets": [{"author": "a", "reason": "r", "changes": [{"id": "z", "share": 1}]}]}, "budgets[0].changes[0].id"),
    ],
)  # fmt: skip
def test_what_does_not_fit_the_trace_is_refused(tmp_path: Path, edits: dict[str, Any], words: str) -> None:
    assert any(words in each for each in refused(tmp_path, **edits))


@pytest.mark.parametrize(("shift", "side"), [("4d", "after its end"), ("-4d", "before its start")])
def test_jobs_are_not_moved_out_of_the_trace(tmp_path: Path, shift: str, side: str) -> None:
    (told,) = refused(tmp_path, jobs=[{"shift": shift}])
    assert told.startswith(f"variant v: jobs[0].shift: '{shift}' moves every one of these jobs {side}; shift them by less")
    assert "345600 s" in told
    assert not refused(tmp_path, jobs=[{"shift": "-6h" if shift[0] == "-" else "6h"}])


def test_maintenance_after_the_end_is_refused(tmp_path: Path) -> None:
    (told,) = refused(tmp_path, maintenance=[{"node": "n1", "at": "4d", "lasts": "1h"}])
    assert "maintenance[0].at: '4d' after the start the trace has ended: nothing is serviced in it" in told
    assert not refused(tmp_path, maintenance=[{"node": "n1", "at": "3d23h", "lasts": "2h"}])


def test_all_edits_that_do_not_fit_are_told_at_once(tmp_path: Path) -> None:
    told = refused(tmp_path, jobs=[{"shift": "9d"}], remove=[{"node": "n8"}, {"node": "n9"}], fail=[{"node": "n1", "at": "5d"}])
    assert [each.split(": ")[1] for each in told] == ["jobs[0].shift", "remove[0].node", "remove[1].node", "fail[0].at"]


def test_domains_of_one_name_are_not_mixed_up(tmp_path: Path) -> None:
    trace = small_trace()
    nodes = tuple(
        node(each.name, domains=(side, "r1"), pool=side)
        for each, side in zip(trace.cluster.nodes, "eeww", strict=True)
    )  # fmt: skip
    twice = replace(trace, cluster=replace(trace.cluster, nodes=nodes))
    assert any("2 domains are called 'r1': e/r1, w/r1" in each for each in refused(tmp_path, twice, remove=[{"domain": "r1"}]))
    assert len(edit(tmp_path, twice, remove=[{"domain": "r1", "pool": "w"}]).cluster.nodes) == 2
    new = edit(tmp_path, twice, add=[{"architecture": "h100", "nodes": 1}]).cluster.nodes[-1]
    assert new.domains == ("h100-new-unit1", "h100-new-unit1/rack1")


# --- budgets and policy --------------------------------------------------------------------------------------------------

MORE = {"author": "eve", "reason": "more", "changes": [{"id": "b", "share": 80}]}


def shares(trace: Trace) -> list[tuple[int, dict[str, int]]]:
    trees = [(trace.start, trace.budgets), *((row.at, row.budgets) for row in trace.revisions)]
    return [(at - START, {vertex.id: int(vertex.share) for vertex in tree}) for at, tree in trees]


def test_a_change_counts_from_its_date_on_and_later_revisions_keep_it(tmp_path: Path) -> None:
    later = Revision(at=START + 2 * DAY, budgets=(budget("a", 10), budget("b", 40)), author="own", reason="r")
    trace = small_trace(revisions=(later,))
    found = edit(tmp_path, trace, budgets=[{**MORE, "at": "1d"}])
    assert shares(found) == [(0, {"a": 60, "b": 40}), (DAY, {"a": 60, "b": 80}), (2 * DAY, {"a": 10, "b": 80})]
    assert [(row.author, row.reason) for row in found.revisions] == [("eve", "more"), ("own", "r")]
    at_once = edit(tmp_path, trace, budgets=[MORE])
    assert shares(at_once) == [(0, {"a": 60, "b": 80}), (2 * DAY, {"a": 10, "b": 80})]
    dated = edit(tmp_path, trace, budgets=[{**MORE, "effective": START + 3 * DAY}])
    assert shares(dated)[-1] == (3 * DAY, {"a": 10, "b": 80})


def test_a_budget_file_replaces_all_trees(tmp_path: Path) -> None:
    sets = [
        {**MORE, "effective": START - DAY},
        {"author": "c", "reason": "x", "effective": START + DAY, "changes": [{"id": "a", "share": 1}]},
        {"author": "c", "reason": "too late", "effective": START + 9 * DAY, "changes": [{"id": "a", "share": 2}]},
    ]
    tree = [{"id": "a", "parent": None, "share": 5}, {"id": "b", "parent": None, "share": 5}]
    (tmp_path / "budgets.json").write_text(json.dumps({"version": 1, "budgets": tree, "change_sets": sets}))
    trace = small_trace(revisions=(Revision(at=START + HOUR, budgets=(budget("a"),)),))
    found = edit(tmp_path, trace, budgets=[{"file": "budgets.json"}])
    assert shares(found) == [(0, {"a": 5, "b": 80}), (DAY, {"a": 1, "b": 80})]
    with pytest.raises(SnapshotError, match="dates of its own"):
        variant(tmp_path, budgets=[{"file": "budgets.json", "at": "1d"}])
    (tmp_path / "budgets.json").write_text('{"budgets": []}')
    with pytest.raises(SnapshotError, match=r"budgets.json: \$.version"):
        variant(tmp_path, budgets=[{"file": "budgets.json"}])


def test_fields_of_the_policy_that_are_not_given_stay(tmp_path: Path) -> None:
    before = small_trace().policy
    found = edit(tmp_path, policy={"protection_cap": "4h", "express": {"gpus": 4}, "weights": {"idle": 0.5}}).policy
    assert (found.protection_cap, found.express.gpus, found.weights.idle) == (4 * HOUR, 4, Fraction(1, 2))
    assert (found.window, found.express.per_user, found.weights.order) == (
        before.window, before.express.per_user, before.weights.order,
    )  # fmt: skip


# --- load ----------------------------------------------------------------------------------------------------------------


def test_load_is_that_of_the_cluster_of_the_base(tmp_path: Path) -> None:
    found = edit(tmp_path, load=0.6, add=[{"like": "n1", "nodes": 4}])
    assert offered_load(found) == pytest.approx(0.3, rel=0.1)


def test_jobs_are_repeated_left_out_moved_and_declared_otherwise(tmp_path: Path) -> None:
    chosen = {"class": "daily", "allocation": "b", "min_gpus": 8, "max_gpus": 8}
    twice = edit(tmp_path, jobs=[{"where": chosen, "times": 2}])
    assert sum(each.workload.allocation == "b" for each in twice.jobs) == 8 + 4 + 8 - 4 + 4
    none = edit(tmp_path, jobs=[{"where": chosen, "times": 0}])
    assert {each.workload.gpus for each in none.jobs if each.workload.allocation == "b"} == {16}
    moved = edit(
        tmp_path, jobs=[{"shift": "-9h", "set": {"class": "new", "min_runtime": "2h", "priority": 3, "pools": ["h100"]}}]
    )
    first = next(each.workload for each in moved.jobs if each.workload.id == "d0-0")
    later = next(each.workload for each in moved.jobs if each.workload.id == "d1-0")
    assert (first.submit_time, later.submit_time) == (START, START + DAY - HOUR)
    assert {(w.job_class, w.min_runtime, w.priority, w.pools) for w in (each.workload for each in moved.jobs)} == {
        ("new", 2 * HOUR, 3, ("h100",))
    }


@pytest.mark.parametrize(("speed", "work", "fails"), [(2, 5401, 1000), (0.5, 21_602, 4000), (1, 10_801, 2000), (1000, 11, 2)])
def test_work_takes_less_time_in_a_faster_pool(tmp_path: Path, speed: float, work: int, fails: int) -> None:
    trace = replace(
        small_trace(),
        jobs=(job("moved", work=10_801, fails_after=2000, job_class="m"), job("stays", work=10_801, job_class="s")),
    )
    moved, stays = edit(
        tmp_path,
        trace,
        jobs=[{"where": {"class": "m"}, "speed": speed, "set": {"pools": ["gb300"]}}],
        add=[{"architecture": "gb300", "racks": 1}],
    ).jobs
    assert (moved.work, moved.fails_after, moved.workload.pools) == (work, fails, ("gb300",))
    assert moved.workload.max_runtime == trace.jobs[0].workload.max_runtime
    assert stays == trace.jobs[1]


def test_what_waited_for_a_job_that_is_left_out_waits_no_more(tmp_path: Path) -> None:
    trace = small_trace()
    jobs = tuple(each if each.workload.id != "c1" else job("c1", gpus=8, user="x") for each in trace.jobs)
    found = edit(tmp_path, replace(trace, jobs=jobs), jobs=[{"where": {"user": "x", "max_gpus": 8}, "times": 0}])
    assert next(each for each in found.jobs if each.workload.id == "c2").after is None


def test_a_trace_that_was_scaled_can_be_scaled_again() -> None:
    twice = scale_load(scale_load(small_trace(), 1.5, 1), 3.0, 2)
    ids = [each.workload.id for each in twice.jobs]
    assert len(ids) == len(set(ids))


@given(seed=st.integers(0, 1 << 30))
@settings(max_examples=20, deadline=None)
def test_drawn_days_keep_hours_and_chains(seed: int) -> None:
    trace = small_trace()
    drawn = draw_days(trace, seed)
    ids = [each.workload.id for each in drawn.jobs]
    assert len(ids) == len(set(ids)) == len(trace.jobs)
    assert [each for each in drawn.jobs if each.workload.job_class == "chain"] == [
        each for each in trace.jobs if each.workload.job_class == "chain"
    ]
    hours = [sorted((each.workload.submit_time - START) % DAY for each in which.jobs) for which in (trace, drawn)]
    assert hours[0] == hours[1]
    assert draw_days(trace, seed) == drawn
