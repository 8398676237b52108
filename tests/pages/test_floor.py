"""The map of the floor against the runs themselves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.domain import printable
from allocator.pages import floor
from allocator.pages.floor import KINDS, PIECES, eighths, floor_of, gradient, in_words, label_of
from allocator.pages.palette import DOWN, DRAIN, IDLE, REST
from allocator.pages.source import read_runs, rows_of
from allocator.pages.thin import HOUR
from tests.pages.material import EVIL, write_replay
from tests.replay.play import START, job, trace


@given(st.lists(st.integers(0, 4000), min_size=len(KINDS), max_size=len(KINDS)).filter(any))
def test_eighths_add_up_and_are_nearly_right(counts: list[int]) -> None:
    state = floor._in_eighths(np.array(counts, dtype=np.int64))
    assert len(state) == PIECES
    for kind, count in zip(KINDS, counts, strict=True):
        assert abs(state.count(kind) - PIECES * count / sum(counts)) < 1


def test_cells_are_in_the_order_of_the_topology_and_show_who_is_there(ours: Path) -> None:
    (run,) = read_runs([ours])
    found = floor_of(run)
    assert found is not None
    assert [(group.name, group.cells) for group in found.groups] == [
        ("h100 > c > r1", ("n1", "n2", "n3")),
        ("h100 > c > r2", ("n4", "n5", "n6")),
    ]
    runs = run.frames["runs"].drop(columns="gpus").merge(run.frames["placements"], on=["job", "number"])
    owner = run.frames["jobs"].set_index("job").project
    for hour in (0, 25, 70):
        moment = START + hour * HOUR + HOUR // 2
        states = dict(zip(("n1", "n2", "n3", "n4", "n5", "n6"), eighths(found.states[hour]), strict=True))
        for row in rows_of(runs[(runs.start <= moment) & (moment < runs.end)]):
            assert states[row.node].count(run.names.letter(owner[row.job])) >= row.gpus
        assert sum(state.count(IDLE) + state.count(DOWN) + state.count(DRAIN) for state in states.values()) == 48 - sum(
            row.gpus for row in rows_of(runs[(runs.start <= moment) & (moment < runs.end)])
        )
    assert eighths(found.states[25])[5] == DOWN * 8
    assert DRAIN in eighths(found.states[10])[4]
    assert printable(EVIL) in found.names.values()


def test_only_some_allocations_have_a_letter(ours: Path) -> None:
    (run,) = read_runs([ours])
    assert len(run.names.letters) == 8
    assert run.names.letter("nobody") == REST
    assert run.names.label(REST) == "+ all others"


def test_large_clusters_are_shown_by_domain_and_at_fewer_hours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(floor, "MOST_CELLS", 4)
    monkeypatch.setattr(floor, "MOST_LETTERS", 3 * PIECES * 2)
    what = trace(job("a", work=3 * HOUR), hours=10, num_nodes=6, per_rack=3)
    (run,) = read_runs([write_replay(tmp_path / "large", what=what)])
    found = floor_of(run)
    assert found is not None
    assert (found.unit, [group.cells for group in found.groups]) == ("rack", [("r1", "r2")])
    assert len(found.hours) == len(found.states) == 3
    assert found.state[0] == "A" * 3 + IDLE * 5  # 8 of 24 GPUs


def test_what_stands_on_a_cell() -> None:
    names = {"A": "vision", "B": "speech", REST: "all others", IDLE: "idle", DOWN: "dead", DRAIN: "wanted empty"}
    assert [label_of(state) for state in ("AABBBB..", "A.......", "++++++AA", "CCCC++++", DOWN * 8, DRAIN * 8, IDLE * 8)] == [
        "B+", "A", "+", "C+", "✕", "\N{EN DASH}", "·",
    ]  # fmt: skip
    assert in_words("AABBBB..", names) == "A vision 2/8, B speech 4/8, idle 2/8"
    assert gradient("AABBBB..") == "linear-gradient(90deg,var(--c0) 0% 25%,var(--c1) 25% 75%,var(--idle) 75% 100%)"
