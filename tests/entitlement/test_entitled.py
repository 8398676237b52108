"""Who is entitled: half a gang is the rounding, large gangs latch, and several that share what is owed take turns."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from allocator.domain import Allocation, Policy, Snapshot, UsageRecord, Workload
from allocator.entitlement import Entitlement, entitle
from allocator.entitlement.entitled import level_ranks
from tests.entitlement.builders import HOUR, NOW, allocation, node, running, snapshot, work

DAY = 24 * HOUR


def pool(num_nodes: int, budgets: list[Allocation], *works: Workload, usage: tuple[UsageRecord, ...] = ()) -> Snapshot:
    return snapshot([node(f"n{i:02}") for i in range(num_nodes)], budgets, works, usage)


def entitled(ent: Entitlement) -> list[str]:
    return [ent.snapshot.workloads[row].id for row in np.flatnonzero(ent.works.entitled)]


def owed(ent: Entitlement, key: str) -> int:
    return int(ent.market.owed[ent.tree.index[key], 0])


EQUAL = [allocation("A"), allocation("B")]


def test_half_a_gang_is_the_rounding() -> None:
    # 8 GPUs, A and B want all of them: each is owed 4, which is half of A's gang of 8.
    assert entitled(entitle(pool(1, EQUAL, work("a", gpus=8), work("b", "B", 8)))) == ["a", "b"]
    # With one GPU-second of usage more A is owed 1/1000 GPU less, and its gang is not.
    behind = UsageRecord(id="u", allocation="A", pool="p", gpus=1, start=NOW - 99, end=NOW - 70)
    ent = entitle(pool(1, EQUAL, work("a", gpus=8), work("b", "B", 8), usage=(behind,)))
    assert (owed(ent, "A"), owed(ent, "B")) == (3999, 4001)
    assert entitled(ent) == ["b"]


def test_what_is_held_and_who_comes_first_count() -> None:
    # A alone is owed all of 16 GPUs and holds 4: 12 are left. 2 * 12 >= 8, then 2 * 4 >= 8, then 2 * -4 < 8.
    works = [running("r", "n00", gpus=4), *(work(f"w{i}", gpus=8, submit_time=NOW - 10 + i) for i in range(3))]
    ent = entitle(pool(2, EQUAL, *works))
    assert owed(ent, "A") == 16_000
    assert entitled(ent) == ["w0", "w1"]


def test_every_vertex_that_funds_has_a_say_and_a_researcher_has_none() -> None:
    # P holds all of its 8 GPUs through A: nothing is left for B, though B itself is owed 4.
    budgets = [allocation("P"), allocation("A", parent="P"), allocation("B", parent="P"), allocation("Q")]
    held = running("r", "n00", since=0, gpus=8)
    ent = entitle(pool(2, budgets, held, work("b", "B", 8), work("q", "Q", 8)))
    assert owed(ent, "P") == 8_000
    assert owed(ent, "B") == 4_000
    assert entitled(ent) == ["q"]
    # A sixteenth of P is a researcher's part; only P, which funds, has a say.
    many = [allocation("P"), *(allocation(f"r{i:02}", parent="P", funds=False) for i in range(16))]
    works = [work(f"w{i:02}", f"r{i:02}", submit_time=NOW - i) for i in range(16)]
    assert entitled(entitle(pool(1, many, *works))) == [f"w{i:02}" for i in range(8, 16)]


def test_floors_of_others_take_nothing_from_what_is_owed() -> None:
    # B's promise fills the pool, so A can be given nothing; but it is owed 4 of 8, and its 8 are entitled.
    ent = entitle(pool(1, EQUAL, running("r", "n00", since=0, gpus=8, leaf="B", protected_until=NOW + 1), work("a", gpus=8)))
    assert int(ent.market.entitled[ent.tree.index["A"], 0]) == 0
    assert owed(ent, "A") == 4_000
    assert entitled(ent) == ["a"]
    assert any("promises fill pool" in warning for warning in ent.warnings)


def test_the_leaf_at_the_lowest_level_comes_first() -> None:
    # A program without a budget below it decides for both leaves; B has used less per share, so its work comes first.
    budgets = [allocation("P"), allocation("A", 1, "P", funds=False), allocation("B", 3, "P", funds=False)]
    used = UsageRecord(id="u", allocation="A", pool="p", gpus=1, start=NOW - DAY, end=NOW)
    same = UsageRecord(id="v", allocation="B", pool="p", gpus=2, start=NOW - DAY, end=NOW)
    works = [
        *(work(f"a{i}", gpus=2, submit_time=1) for i in range(4)),
        *(work(f"b{i}", "B", 2, submit_time=2) for i in range(3)),
    ]
    # 8 GPUs: three gangs of 2 for B, one for A (and half of another: 2 * 0 >= 2 is false).
    assert entitled(entitle(pool(1, budgets, *works, usage=(used, same)))) == ["a0", "b0", "b1", "b2"]


def test_running_work_that_has_become_funded_is_entitled_to_promotion() -> None:
    ent = entitle(pool(1, EQUAL, running("r", "n00", gpus=4, charged=False)))
    assert entitled(ent) == ["r"]
    assert ent.works.entitled_since.tolist() == [0]


def test_a_large_gang_latches() -> None:
    # 32 GPUs: large is 8 and more. Each of A and B is owed half of what they want together.
    ent = entitle(pool(4, EQUAL, work("large", gpus=8), work("small", gpus=4)))
    assert ent.works.entitled_since.tolist() == [NOW, 0]


def over_its_share(*works: Workload) -> Entitlement:
    """32 GPUs; A has used nine days' worth of a GPU, so that B is owed everything."""
    usage = UsageRecord(id="u", allocation="A", pool="p", gpus=9, start=NOW - DAY, end=NOW)
    return entitle(pool(4, EQUAL, *works, *(work(f"b{i:02}", "B", 2) for i in range(16)), usage=(usage,)))


def test_a_latched_gang_stays_entitled_when_its_credit_is_gone() -> None:
    since = NOW - HOUR
    ent = over_its_share(work("a", gpus=8, entitled_since=since))
    assert owed(ent, "A") == 0
    assert "a" in entitled(ent)
    assert int(ent.works.entitled_since[0]) == since


def test_what_does_not_latch() -> None:
    assert "a" not in entitled(over_its_share(work("a", gpus=8)))  # no mark
    assert "a" not in entitled(over_its_share(work("a", gpus=8, entitled_since=NOW)))  # the mark of this instant
    assert "a" not in entitled(over_its_share(work("a", gpus=7, entitled_since=NOW - 1)))  # no large gang


def test_a_latched_gang_counts_as_held_for_those_after_it() -> None:
    # A alone is owed 32: the latched 16, then 2 * 16 >= 16, then nothing.
    works = [work(f"w{i}", gpus=16, submit_time=NOW - 9 + i) for i in range(3)]
    works[2] = work("w2", gpus=16, submit_time=NOW, entitled_since=NOW - 5)
    assert entitled(entitle(pool(4, EQUAL, *works))) == ["w0", "w2"]


def test_a_gang_that_starts_now_keeps_its_mark() -> None:
    started = running("a", "n00", since=0, gpus=8, granted_at=NOW, entitled_since=NOW - HOUR, protected_until=NOW + HOUR)
    ent = over_its_share(started)
    assert "a" in entitled(ent)
    assert int(ent.works.entitled_since[0]) == NOW - HOUR


def test_a_latched_gang_without_funds_is_not_entitled() -> None:
    spent = UsageRecord(id="u", allocation="A", pool="p", gpus=99, start=NOW - 6 * DAY, end=NOW)
    ent = entitle(pool(4, EQUAL, work("a", gpus=8, entitled_since=NOW - 1), usage=(spent,)))
    assert entitled(ent) == []


def test_gangs_that_split_what_is_owed_take_turns() -> None:
    # Four gangs as large as the pool of 16: each is owed 4, half of 16 would be 8; together they are owed 16.
    budgets = [allocation(leaf) for leaf in "ABCD"]
    gangs = [work(leaf.lower(), leaf, 16, submit_time=NOW - ord(leaf)) for leaf in "ABCD"]
    ent = entitle(pool(2, budgets, *gangs))
    assert [owed(ent, leaf) for leaf in "ABCD"] == [4_000] * 4
    assert entitled(ent) == ["d"]
    assert ent.works.entitled_since.tolist() == [0, 0, 0, NOW]
    # B has used least: it is at the lowest level.
    usage = tuple(UsageRecord(id=leaf, allocation=leaf, pool="p", gpus=1, start=NOW - 9, end=NOW) for leaf in "ACD")
    assert entitled(entitle(pool(2, budgets, *gangs, usage=usage))) == ["b"]


def test_gangs_do_not_take_what_is_owed_to_small_work() -> None:
    # A and B wait with gangs of 16, C to F with 16 single GPUs each: a sixth of 16 each, 5,333 for A and B: less than 8.
    budgets = [allocation(leaf) for leaf in "ABCDEF"]
    small = [work(f"{leaf}{i:02}", leaf) for leaf in "CDEF" for i in range(16)]
    ent = entitle(pool(2, budgets, work("a", "A", 16), work("b", "B", 16), *small))
    assert owed(ent, "A") + owed(ent, "B") in (5_333, 5_334)
    assert not {"a", "b"} & set(entitled(ent))


def test_a_gang_alone_has_nobody_to_take_turns_with() -> None:
    budgets = [allocation(leaf) for leaf in "ABC"]
    small = [work(f"{leaf}{i:02}", leaf) for leaf in "BC" for i in range(16)]
    ent = entitle(pool(2, budgets, work("a", "A", 16), *small))
    assert owed(ent, "A") in (5_333, 5_334)
    assert "a" not in entitled(ent)


def test_gangs_of_one_project_share_one_claim() -> None:
    # Two gangs of A, owed a third of 48 GPUs: 16 + 16 would be half of 48, but A is owed 16 only once.
    budgets = [allocation(leaf) for leaf in "ABC"]
    small = [work(f"{leaf}{i:02}", leaf, 1) for leaf in "BC" for i in range(48)]
    ent = entitle(pool(6, budgets, work("a1", "A", 48), work("a2", "A", 48), *small))
    assert owed(ent, "A") == 16_000
    assert not {"a1", "a2"} & set(entitled(ent))


def test_reserve_from_says_what_is_large() -> None:
    case = pool(4, EQUAL, work("w", gpus=8))
    assert entitle(case).works.entitled_since.tolist() == [NOW]
    smaller = snapshot(case.cluster.nodes, EQUAL, case.workloads, policy=Policy(reserve_from=Fraction(1, 2)))
    assert entitle(smaller).works.entitled_since.tolist() == [0]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 4)), min_size=1, max_size=8))
def test_ranks_follow_exact_levels(leaves: list[tuple[int, int]]) -> None:
    amount = np.array([[used] for used, _ in leaves])
    share = np.array([[Fraction(part, 7)] for _, part in leaves], dtype=object)
    rows = np.arange(len(leaves))
    ranks = level_ranks(rows, np.zeros_like(rows), amount, share)
    levels = [Fraction(7 * used, part) if part else Fraction(10**9) for used, part in leaves]
    distinct = sorted(set(levels))
    assert ranks.tolist() == [distinct.index(level) for level in levels]


def test_ranks_of_nothing() -> None:
    none = np.zeros(0, dtype=np.int64)
    assert level_ranks(none, none, np.zeros((1, 1), dtype=np.int64), np.array([[Fraction(1)]], dtype=object)).tolist() == []
