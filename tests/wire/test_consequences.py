"""A part that cannot be read is named once; what only follows from that is not told beside it."""

from __future__ import annotations

import pytest

from tests.wire.documents import Json, budget, document, issue_of, issues_of, job, node, rejection_of


@pytest.mark.parametrize("budgets", [None, 5, "x", {}])
def test_a_budget_tree_that_cannot_be_read_makes_no_allocation_unknown(budgets: object) -> None:
    assert issue_of({**document(job("w"), job("v")), "budgets": budgets}).startswith("$.budgets: ")


def test_a_vertex_without_a_readable_name_may_be_any() -> None:
    value = document(job("w", "other"))
    value["budgets"][2]["id"] = 5
    assert issue_of(value).startswith("$.budgets[2].id: ")


def with_nodes(*nodes: Json) -> Json:
    value = document(job("w"))
    value["cluster"]["nodes"] = list(nodes)
    return value


@pytest.mark.parametrize(
    ("nodes", "path"),
    [
        ([], "$.cluster.nodes: the cluster is empty"),
        ([node("n1", gpus=0)], "$.cluster.nodes: no node has a GPU"),
        ([node("n1", gpus=4097)], "$.cluster.nodes[0].gpus: "),
        ([node("n1", gpus=1), node("n2", gpus="8")], "$.cluster.nodes[1].gpus: "),
    ],
)
def test_nothing_is_too_large_for_a_cluster_of_which_nodes_are_missing(nodes: list[Json], path: str) -> None:
    assert issue_of(with_nodes(*nodes)).startswith(path)


def test_a_level_is_unknown_all_the_same() -> None:
    value = with_nodes(node("n1", gpus="8"))
    value["workloads"][0]["topology"] = {"required": "row"}
    first, second = map(str, issues_of(value))
    assert first.startswith("$.cluster.nodes[0].gpus: ")
    assert 'unknown level "row"' in second


def test_the_example_of_a_leaf_is_one() -> None:
    value = document(job("w", "top"), job("v"))
    value["budgets"] += [budget("top"), budget("mid", "top"), budget("low", "mid")]
    assert rejection_of(value).detail.endswith('submit to a vertex without children, for example "low"')


def test_a_cycle_has_no_leaf_to_name() -> None:
    value = document(job("w", "a"))
    value["budgets"] += [budget("a", "b"), budget("b", "a")]
    issues = [str(issue) for issue in issues_of(value)]
    assert "the budgets form a cycle" in issues[0]
    assert issues[1].endswith("submit to a vertex without children")


def test_nothing_to_choose_from_is_said_in_words() -> None:
    value = {**document(job("w")), "budgets": []}
    assert rejection_of(value).detail.endswith('unknown allocation "eval"; none is defined')


def test_an_open_range_is_stated() -> None:
    value = document(job("w", preempted=-1), job("v"))
    assert "give an integer from 0 to 1,000,000" in rejection_of(value).detail
