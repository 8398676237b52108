"""Documents that are refused as a whole: each message says where, what, and what would be valid."""

from __future__ import annotations

import gzip
import json

import pytest

from allocator.domain import SnapshotError
from allocator.wire import decode_snapshot, load_snapshot
from allocator.wire import source as source_module
from tests.wire.documents import NOW, Json, budget, document, encoded, issue_of, issues_of, job, node, running

# --- no JSON -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_not_a_number(word: str) -> None:
    data = encoded(document(job("w"))).replace(b'"tasks": 1', f'"tasks": {word}'.encode())
    message = issue_of(data)
    assert "not JSON at line 1, column" in message
    assert f"{word} is no JSON number" in message


@pytest.mark.parametrize(
    ("data", "part"),
    [
        (b"", "the document is empty"),
        (b"  \n", "the document is empty"),
        (b"hello", "not JSON at line 1, column 1"),
        (b'{"version": 1,\n "now": 5,,}', "line 2, column 11"),
        (encoded(document())[:-20], "ends too early"),
        (encoded(document()) + b"{}", "trailing characters"),
        (encoded(document()).replace(b"eval", b"ev\xffl"), "UTF-8"),
        (encoded(document()).replace(b"eval", b"\\ud800"), "surrogate"),
        (b"[" * 1_000_000, "not a JSON object"),
        (b'{"version": ' * 1_000_000, "nested too deeply"),
        (b'{"version": 1, "more": ' + b"[" * 1_000_000 + b"]" * 1_000_000 + b"}", "nested too deeply"),
        (b"[]", "not a JSON object"),
        (b"null", "not a JSON object"),
    ],
)
def test_not_json(data: bytes, part: str) -> None:
    assert part in issue_of(data)


def test_every_depth_is_survived() -> None:
    """Decoders and checks have their own limits; whichever is met first says so."""
    for depth in range(850, 1_050, 5):
        deep = b"[" * depth + b"]" * depth
        data = encoded(document(job("w", colour=5))).replace(b'"colour": 5', b'"colour": ' + deep)
        try:
            found = decode_snapshot(data).rejected[0].detail
        except SnapshotError as error:
            found = str(error)
        assert "nested too deeply" in found or 'unknown field "colour"' in found


def test_a_byte_order_mark_is_no_problem() -> None:
    assert decode_snapshot(b"\xef\xbb\xbf" + encoded(document())).now == NOW


# --- compression ---------------------------------------------------------------------------------------------------------


def test_compressed_input_is_recognised_by_its_content() -> None:
    data = encoded(document(job("w")))
    half = len(data) // 2
    assert decode_snapshot(gzip.compress(data)) == decode_snapshot(data)
    assert decode_snapshot(gzip.compress(data[:half]) + gzip.compress(data[half:])) == decode_snapshot(data)


def test_truncated_gzip() -> None:
    packed = gzip.compress(encoded(document(job("w"))))
    assert "the gzip data is truncated" in issue_of(packed[:-12])
    assert "truncated" in issue_of(packed[:8])


def test_what_follows_gzip_data_is_not_ignored() -> None:
    data = encoded(document(job("w")))
    packed = gzip.compress(data)
    assert decode_snapshot(packed + bytes(512)) == decode_snapshot(data)
    assert "4 bytes that are no gzip data follow" in issue_of(packed + b"junk")


def test_damaged_gzip() -> None:
    packed = bytearray(gzip.compress(encoded(document(job("w")))))
    packed[len(packed) // 2] ^= 0xFF
    assert "damaged" in issue_of(bytes(packed)) or "not JSON" in issue_of(bytes(packed))


def test_a_gzip_bomb_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "MAX_BYTES", 10_000)
    assert "unpacks to more than 10,000 bytes" in issue_of(gzip.compress(b" " * 10_000_000))


def test_a_missing_file_is_named() -> None:
    with pytest.raises(SnapshotError, match=r"cannot read 'nowhere\.json'"):
        load_snapshot("nowhere.json")


# --- shape ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "$.version: 2 is not valid here; give 1"),
        ({"now": -1}, "$.now: -1 is not valid here; give an integer from 0"),
        (
            {"now": 1_764_430_000_000},
            "$.now: 1764430000000 is not valid here; give an integer from 0 to 90,000,000,000 (seconds since the Unix epoch)",
        ),
        ({"now": "today"}, '$.now: "today" is not valid here'),
        ({"now": True}, "$.now: true is not valid here"),
        ({"nwo": 5}, '$.nwo: unknown field "nwo"; did you mean "now"?'),
        ({"budgets": {}}, "$.budgets: an object is not valid here; give an array"),
        ({"policy": {"window": 0}}, "$.policy.window: 0 is not valid here; give an integer from 1"),
        ({"policy": {"horizon": 0}}, "$.policy.horizon: 0 is not valid here"),
        ({"policy": {"weights": {"idle": -1}}}, "$.policy.weights.idle: -1 is not valid here; give a number from 0"),
        ({"policy": {"weights": {"idel": 1}}}, '$.policy.weights.idel: unknown field "idel"; did you mean "idle"?'),
        (
            {"policy": {"express": {"pool_share": 5}}},
            "$.policy.express.pool_share: 5 is not valid here; give a number from 0 to 1",
        ),
        ({"workloads": [7]}, "$.workloads[0]: 7 is not valid here; give an object"),
        ({"workloads": [{"tasks": 1}]}, "$.workloads[0].id: the field is missing; give a non-empty string"),
        ({"usage": [{"allocation": "eval", "pool": "h100", "gpus": -1, "start": 1, "end": 2}]}, "$.usage[0].gpus: -1"),
    ],
)
def test_wrong_fields(change: Json, message: str) -> None:
    assert any(str(issue).startswith(message) for issue in issues_of(document() | change))


def test_missing_sections_are_all_named() -> None:
    assert {issue.path for issue in issues_of({"version": 1})} == {"$.now", "$.cluster", "$.budgets", "$.workloads"}


@pytest.mark.parametrize("number", ["1e400", "-1e400", "1" * 5_000])
def test_numbers_out_of_range(number: str) -> None:
    data = encoded(document()).replace(b'"share": 3', f'"share": {number}'.encode())
    assert issue_of(data).startswith("$.budgets[1].share: a number out of range is not valid here; give a number from 0")


def test_all_problems_are_reported_not_the_first() -> None:
    bad = document(job("w", tasks=0), running("r", {"n9": 1}), now="x")
    bad["cluster"]["nodes"][1] |= {"gpus": "8", "rack": 1}
    bad["budgets"][2]["parent"] = "bsae"
    paths = {issue.path for issue in issues_of(bad)}
    assert paths == {
        "$.now",
        "$.cluster.nodes[1].gpus",
        "$.cluster.nodes[1].rack",
        "$.budgets[2].parent",
        "$.workloads[1].run.placement.n9",
        "$.workloads[?@.id=='w'].tasks",
    }


def test_what_could_not_be_read_is_not_called_unknown() -> None:
    """A node and a budget with a wrong field still exist: work that names them is not blamed."""
    bad = document(job("w", "eval"), running("r", {"n1": 1}))
    bad["cluster"]["nodes"][0]["gpus"] = None
    bad["budgets"][2]["share"] = "1"
    assert [issue.path for issue in issues_of(bad)] == ["$.cluster.nodes[0].gpus", "$.budgets[2].share"]


def test_paths_count_what_could_not_be_read() -> None:
    bad = document(job("w", tasks=0), job("v"), running("r", {"n9": 1}))
    bad["cluster"]["nodes"] = [{"name": "n0"}, *bad["cluster"]["nodes"], node("n1")]
    paths = [issue.path for issue in issues_of(bad)]
    assert "$.cluster.nodes[5].name" in paths
    assert "$.workloads[2].run.placement.n9" in paths


def test_a_cluster_that_is_no_object_blames_no_workload() -> None:
    assert issue_of(document(running("r", {"n1": 1}), job("w"), cluster=[])).startswith("$.cluster: an array is not valid")
    assert issue_of(document(running("r", {"n1": 1}), cluster={"levels": ["node"]})).startswith(
        "$.cluster.nodes: the field is missing"
    )


def test_values_are_shown_short_and_safe() -> None:
    message = issue_of(document(now="\x1b[31m" + "x" * 1_000))
    assert "\x1b" not in message
    assert len(message) < 200


# --- contradictions: cluster ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", [[], [node("n1", gpus=0)]])
def test_empty_cluster(nodes: list[Json]) -> None:
    data = document()
    data["cluster"]["nodes"] = nodes
    message = issue_of(data)
    assert message.startswith("$.cluster.nodes: ")
    assert "give at least one node with GPUs" in message


def test_duplicate_node() -> None:
    data = document()
    data["cluster"]["nodes"].append(node("n2"))
    assert issue_of(data).startswith('$.cluster.nodes[4].name: "n2" was given before, at $.cluster.nodes[1]')


def test_number_of_domains() -> None:
    data = document()
    data["cluster"]["nodes"][0]["domains"] = ["east"]
    assert issue_of(data) == (
        '$.cluster.nodes[0].domains: node "n1" names 1 domains, there are 2 levels above the node; '
        'give one domain per level, coarse to fine: "cluster", "rack"'
    )


def test_levels() -> None:
    data = document()
    data["cluster"]["levels"] = ["cluster", "cluster", "node"]
    data["cluster"]["slowdown"] = {"rakc": 0.1, "cluster": 2}
    found = [str(issue) for issue in issues_of(data)]
    assert any(message.startswith('$.cluster.levels[1]: the level "cluster" was given before') for message in found) or any(
        message.startswith("$.cluster.slowdown.cluster: 2 is not valid here; give a number from 0 to 1") for message in found
    )
    data["cluster"]["slowdown"] = {"rakc": 0.1}
    found = [str(issue) for issue in issues_of(data)]
    assert found[0].startswith('$.cluster.levels[1]: the level "cluster" was given before')
    assert found[1].startswith('$.cluster.slowdown.rakc: unknown level "rakc"')


# --- contradictions: budgets and usage -----------------------------------------------------------------------------------


def test_duplicate_budget() -> None:
    data = document()
    data["budgets"].append(budget("eval"))
    assert issue_of(data).startswith('$.budgets[3].id: "eval" was given before, at $.budgets[2]')


def test_unknown_parent() -> None:
    data = document(budgets=[budget("base"), budget("eval", "bass")])
    assert issue_of(data).startswith('$.budgets[1].parent: unknown parent "bass" of "eval"; give the id of a budget, or null')
    assert 'did you mean "base"?' in issue_of(data)


@pytest.mark.parametrize(
    ("budgets", "way"),
    [
        ([budget("a", "a")], '"a" -> "a"'),
        ([budget("a", "b"), budget("b", "a")], '"a" -> "b" -> "a"'),
        ([budget("0", "b"), budget("b", "c"), budget("c", "d"), budget("d", "b")], '"b" -> "c" -> "d" -> "b"'),
    ],
)
def test_cyclic_budgets(budgets: list[Json], way: str) -> None:
    assert f"the budgets form a cycle: {way}; give one of them the parent null" in issue_of(document(budgets=budgets))


def test_two_cycles_are_two_issues() -> None:
    rows = [budget("a", "b"), budget("b", "a"), budget("c", "d"), budget("d", "c"), budget("e", "a")]
    assert len(issues_of(document(budgets=rows))) == 2


def test_a_record_that_ends_before_it_starts() -> None:
    data = document(usage=[{"allocation": "eval", "pool": "h100", "gpus": 8, "start": NOW, "end": NOW - 1}])
    assert f"$.usage[0].end: {NOW - 1} lies before the start {NOW}" in issue_of(data)


def test_pieces_of_a_record_that_disagree() -> None:
    piece = {"id": "r", "allocation": "eval", "pool": "h100", "gpus": 8, "start": NOW - 10, "end": NOW}
    message = issue_of(document(usage=[piece, piece | {"gpus": 4, "start": NOW - 5}]))
    assert message.startswith('$.usage[1].gpus: 4, but the record at $.usage[0] with the same id "r" has 8')


# --- contradictions: workloads -------------------------------------------------------------------------------------------


def test_duplicate_workload() -> None:
    assert issue_of(document(job("w"), job("v"), job("w"))).startswith(
        '$.workloads[2].id: "w" was given before, at $.workloads[0]'
    )


def test_duplicates_among_rejected_workloads() -> None:
    assert any("is given twice" in str(issue) for issue in issues_of(document(job("w", tasks=0), job("w"))))
    assert any("was given before" in str(issue) for issue in issues_of(document(job("w", "?"), job("w", "?"))))


def test_run_on_an_unknown_node() -> None:
    message = issue_of(document(running("r", {"n5": 1})))
    assert message.startswith(
        '$.workloads[0].run.placement.n5: "r" runs on the unknown node "n5"; list the node with state down'
    )


@pytest.mark.parametrize(
    ("work", "message"),
    [
        (running("r", {"n1": 1, "n2": 1}, tasks=3), '$.workloads[0].run.placement: 2 tasks of "r" are placed, it has 3'),
        (running("r", {"n3": 1, "n4": 1}), '$.workloads[0].run.placement: "r" runs in several pools: "b200", "h100"'),
        (running("r", {"n1": 0}, tasks=1), "$.workloads[0].run.placement.n1: 0 is not valid here"),
        (running("r", {}, tasks=1), "$.workloads[0].run.placement: the object is empty"),
        (running("r", {"n1": 1}, tasks=-1), "$.workloads[0].tasks: -1 is not valid here"),
        (running("r", {"n1": 1}, colour="red"), '$.workloads[0].colour: unknown field "colour"'),
        (
            running("r", {"n1": 1}, topology={"required": "rakc"}),
            '$.workloads[0].topology.required: "r" runs and names the unknown',
        ),
    ],
)
def test_runs_that_make_no_sense(work: Json, message: str) -> None:
    assert issues_of(document(work, job("w")))[0].path in message
    assert str(issues_of(document(work, job("w")))[0]).startswith(message)


@pytest.mark.parametrize(
    ("limits", "asked", "what"),
    [
        ({}, {"gpus_per_task": 5}, 'gpus: node "n1" is over-full: 10 GPUs are in use, it has 8; largest: "s" (5), "r" (5)'),
        ({"cpus": 100}, {"cpus_per_task": 60}, 'cpus: node "n1" is over-full: 120 CPUs are in use, it has 100'),
        ({"memory_gib": 100}, {"memory_gib_per_task": 60}, 'memory_gib: node "n1" is over-full: 120 GiB of memory are in use'),
    ],
)
def test_over_full_node(limits: Json, asked: Json, what: str) -> None:
    data = document(running("r", {"n1": 1}, **asked), running("s", {"n1": 1}, **asked))
    data["cluster"]["nodes"][0] |= limits
    assert issue_of(data).startswith(f"$.cluster.nodes[0].{what}")


def test_leaving_and_ordered_work_may_share_a_node_but_neither_with_what_stays() -> None:
    leaves = running("leaves", {"n1": 1}, gpus_per_task=8, run={"terminating_until": NOW + 60})
    ordered = running("ordered", {"n1": 1}, gpus_per_task=8, run={"start_time": NOW + 60})
    assert len(decode_snapshot(encoded(document(leaves, ordered))).workloads) == 2
    stays = running("stays", {"n1": 1}, gpus_per_task=1)
    assert len(issues_of(document(leaves, ordered, stays))) == 2


# --- odd but legal -------------------------------------------------------------------------------------------------------


def test_empty_queue_and_no_budgets() -> None:
    snapshot = decode_snapshot(encoded(document(budgets=[])))
    assert not snapshot.workloads
    assert not snapshot.budgets


def test_all_shares_zero() -> None:
    snapshot = decode_snapshot(encoded(document(job("w", "a"), budgets=[budget("a", share=0), budget("b", share=0)])))
    assert [vertex.share for vertex in snapshot.budgets] == [0, 0]
    assert not snapshot.rejected


def test_a_clock_before_its_records() -> None:
    late = {"id": "r", "allocation": "eval", "pool": "h100", "gpus": 8, "start": NOW + 10, "end": NOW + 20}
    ends_late = {"allocation": "eval", "pool": "h100", "gpus": 8, "start": NOW - 10, "end": NOW + 20}
    work = running("r", {"n1": 1}, submit_time=NOW + 5, run={"start_time": NOW + 50})
    snapshot = decode_snapshot(encoded(document(work, usage=[late, ends_late])))
    assert sorted((record.start, record.end) for record in snapshot.usage) == [(NOW - 10, NOW + 20), (NOW + 10, NOW + 20)]
    assert snapshot.workloads[0].run is not None
    assert snapshot.workloads[0].run.start_time == NOW + 50


def test_history_of_what_is_gone_is_legal() -> None:
    gone = {"allocation": "gone", "pool": "v100", "gpus": 8, "start": NOW - 9, "end": NOW}
    old_reservation = {
        "workload": "gone", "pool": "v100", "domain": ["west"], "nodes": 2, "start": NOW, "eligible_since": NOW, "bound": NOW
    }  # fmt: skip
    orphan = running("r", {"n1": 1}, allocation="gone", stopped={"at": 5, "pool": "v100", "gpus": 8, "charged": True})
    snapshot = decode_snapshot(encoded(document(orphan, usage=[gone], reservations=[old_reservation])))
    assert snapshot.workloads[0].allocation == "gone"
    assert len(snapshot.usage) == len(snapshot.reservations) == 1


def test_null_means_absent() -> None:
    plain = decode_snapshot(encoded(document(job("w"))))
    nulls: Json = {"user": None, "run": None, "topology": None, "max_runtime": None, "stopped": None, "cpus_per_task": None}
    assert decode_snapshot(encoded(document(job("w", **nulls)))) == plain


def test_a_large_part_of_a_document_is_not_quoted() -> None:
    data = json.dumps(document(now=["x" * 100_000])).encode()
    assert len(issue_of(data)) < 200
