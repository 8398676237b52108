"""Intervals paired by seed, and sentences that say no more than they carry."""

from __future__ import annotations

import numpy as np
import pytest

from allocator.replay.bootstrap import DRAWS, draws
from allocator.replay.metrics import METRICS
from allocator.whatif.comparison import Row, Samples, as_documents, compare_cells, compare_pools, compare_projects
from allocator.whatif.gains import gains_lines, gains_table, has_speed, pools_table
from allocator.whatif.samples import Name, Sample
from allocator.whatif.sentences import sentences

DAYS = draws(4)
NOISE = np.array([3.0, -1.0, -2.0, 0.0])


def sample(level: float, *, noise: float = 1.0) -> Sample:
    """A mean over four days around a level."""
    days = level + noise * NOISE
    return Sample(float(days.mean()), DAYS @ days / 4)


def samples(values: dict[str, list[Sample]], metric: str = "occupancy", project: str = "", pool: str = "") -> Samples:
    """By variant one sample for each seed; of all other metrics nothing is known."""
    unknown: dict[Name, Sample] = {("", "", each.name): Sample(None, None) for each in METRICS}
    return {
        (variant, seed): {**unknown, (project, pool, metric): one}
        for variant, of_seeds in values.items()
        for seed, one in enumerate(of_seeds)
    }


def row(found: list[Row], variant: str, metric: str = "occupancy") -> Row:
    return next(each for each in found if (each.variant, each.metric) == (variant, metric))


def test_what_both_share_does_not_blur_the_difference() -> None:
    found = compare_cells(samples({"base": [sample(10)], "v": [sample(11, noise=1.01)]}), ["base", "v"], [0])
    base, other = row(found, "base"), row(found, "v")
    assert (base.value, base.difference) == (10, None)
    assert other.difference == pytest.approx(1)
    assert base.low is not None
    assert base.high is not None
    assert base.high - base.low > 1
    assert other.differs
    assert other.difference_low == pytest.approx(1, abs=0.1)


def test_a_difference_within_its_interval_is_not_claimed() -> None:
    found = compare_cells(samples({"base": [sample(10)], "v": [sample(10.2, noise=-1)]}), ["base", "v"], [0])
    assert not row(found, "v").differs
    told = sentences(found, [], ["base", "v"], 1)
    assert told[0] == "v: no difference to base can be told in the assigned part of the cluster."


def test_days_that_say_nothing_give_no_interval_and_three_seeds_do() -> None:
    fixed = [Sample(value, np.full(DRAWS, value)) for value in (1.0, 2.0, 3.0)]
    moved = [Sample(value, None) for value in (2.0, 3.5, 4.0)]
    alone = row(compare_cells(samples({"base": fixed[:1], "v": moved[:1]}), ["base", "v"], [0]), "v")
    assert (alone.difference, alone.difference_low, alone.differs) == (1.0, None, False)
    found = row(compare_cells(samples({"base": fixed, "v": moved}), ["base", "v"], [0, 1, 2]), "v")
    assert found.difference == pytest.approx(3.5 / 3)
    assert (found.difference_low, found.difference_high, found.differs) == (1.0, 1.5, True)


def test_a_seed_without_the_metric_is_left_out() -> None:
    half = [sample(10), Sample(None, None)]
    found = row(compare_cells(samples({"base": half, "v": [sample(12), sample(99)]}), ["base", "v"], [0, 1]), "v")
    assert found.difference == pytest.approx(2)
    gaps = Sample(10.0, np.where(np.arange(DRAWS) % 2 == 0, np.nan, 10.0 + np.arange(DRAWS)))
    assert row(compare_cells(samples({"base": [gaps]}), ["base"], [0]), "base").low is not None


def test_sentences_name_the_direction_the_interval_and_the_chance() -> None:
    found = compare_cells(samples({"base": [sample(0.5, noise=0.01)], "v": [sample(0.4, noise=0.01)]}), ["base", "v"], [0])
    known = [each._replace(difference_low=-0.2, difference_high=-0.05) if each.difference else each for each in found]
    told = sentences(known, [], ["base", "v"], 1)
    assert told[0] == "v: the assigned part of the cluster falls from 50.0 % to 40.0 % (difference -20.0 % to -5.0 %)."
    assert told[1] == "Of 1 comparisons, about 5 in 100 would look like a difference by chance alone."
    assert "intervals are of days alone" in told[2]
    assert len(sentences(known, [], ["base", "v"], 3)) == 2


def test_a_difference_of_fewer_seeds_than_the_values_is_said_to_be_so() -> None:
    base = [sample(0.9, noise=0.01), Sample(None, None), Sample(None, None)]
    moved = [sample(level, noise=0.011) for level in (0.8, 1.0, 1.0)]
    found = compare_cells(samples({"base": base, "v": moved}), ["base", "v"], [0, 1, 2])
    told = sentences(found, [], ["base", "v"], 3)[0]
    assert told.startswith("v: the assigned part of the cluster falls from 90.0 % to 93.3 % (difference -10.")
    assert told.endswith(", of the seeds in which both are known).")


def test_an_interval_on_the_other_side_of_its_difference_claims_nothing() -> None:
    found = row(compare_cells(samples({"base": [sample(10)], "v": [sample(11)]}), ["base", "v"], [0]), "v")
    assert found.difference == pytest.approx(1)
    assert not found._replace(difference_low=-2.0, difference_high=-1.0).differs
    assert found._replace(difference_low=0.5, difference_high=2.0).differs


def test_a_difference_that_its_own_figures_show_as_0_is_not_claimed() -> None:
    found = compare_cells(samples({"base": [sample(0.5, noise=0.01)], "v": [sample(0.4, noise=0.01)]}), ["base", "v"], [0])
    tiny = [each._replace(difference_low=-0.2, difference_high=-0.0001) if each.difference else each for each in found]
    assert "no difference to base can be told" in sentences(tiny, [], ["base", "v"], 3)[0]


def test_who_gains_and_who_loses() -> None:
    rows: list[Row] = []
    for project, change in (("p", -5.0), ("q", 5.0)):
        values = {"base": [sample(20)], "v": [sample(20 + change, noise=1.1)]}
        rows += compare_projects(samples(values, "useful_per_day", project), ["base", "v"], [0])
    cluster = compare_cells(samples({"base": [sample(10)], "v": [sample(11, noise=1.01)]}), ["base", "v"], [0])
    told = sentences(cluster, rows, ["base", "v"], 3)
    assert any(each.startswith("v: p: useful time a day falls from 20.0 GPU-h to 15.0 GPU-h") for each in told)
    assert any(each.startswith("v: q: useful time a day rises") for each in told)
    lines = gains_lines(as_documents(rows), "v", "base")
    assert [line.split()[0] for line in lines] == ["project", "q", "p"]
    assert "20.0 -> 25.0" in lines[1]
    assert lines[1].endswith("gains")
    assert lines[2].endswith("loses")
    none = sentences(cluster, [each._replace(difference_low=-9, difference_high=9) for each in rows], ["base", "v"], 3)
    assert "v: of no project can it be told that it gains or loses." in none


def test_gpu_hours_of_faster_gpus_are_no_gain_and_no_loss() -> None:
    rows: list[Row] = []
    for metric, change in (("useful_per_day", -5.0), ("wait_p50", -9000.0)):
        values = {"base": [sample(20_000)], "v": [sample(20_000 + change, noise=1.1)]}
        rows += [row for row in compare_projects(samples(values, metric, "p"), ["base", "v"], [0]) if row.metric == metric]
    rows += compare_projects(samples({"base": [sample(1)], "v": [sample(1)]}, "delivered", "p"), ["base", "v"], [0])[:2]
    cluster = compare_cells(samples({"base": [sample(10)], "v": [sample(11, noise=1.01)]}), ["base", "v"], [0])
    told = sentences(cluster, rows, ["base", "v"], 3, {"v"})
    assert not any("useful time a day" in each for each in told)
    assert "v: useful time is not compared: where jobs are faster, an hour of a GPU does more work." in told
    assert any(each.startswith("v: p: the median wait falls") for each in told)
    assert any("useful time a day falls" in each for each in sentences(cluster, rows, ["base", "v"], 3))
    assert sentences(cluster, rows, ["base", "v"], 3, {"base"}) == told
    plain, fast = (gains_table(as_documents(rows), "v", "base", faster=faster)[1][-1] for faster in (False, True))
    assert (plain, fast) == ("", "gains")
    assert has_speed({"jobs": [{"times": 2}, {"speed": 2}]})
    assert not has_speed({"jobs": [{"times": 2}]})


def test_shares_of_projects_are_told_in_percent() -> None:
    values = {"base": [sample(0.5, noise=0.01)], "v": [sample(0.7, noise=0.011)]}
    rows = compare_projects(samples(values, "delivered", "p"), ["base", "v"], [0])
    cluster = compare_cells(samples({"base": [sample(10)], "v": [sample(11, noise=1.01)]}), ["base", "v"], [0])
    told = sentences(cluster, rows, ["base", "v"], 3)
    assert any(
        each.startswith("v: p: what it gets of what it is owed rises from 50.0 % to 70.0 % (difference") for each in told
    )


def test_pools_and_projects_in_them() -> None:
    values = {"base": [sample(0.5, noise=0.01)], "v": [sample(0.7, noise=0.011)]}
    both: Samples = {
        cell: {**of_pool, **samples(values, "delivered", "p", "b300")[cell]}
        for cell, of_pool in samples(values, "occupancy", pool="b300").items()
    }
    rows = compare_pools(both, ["base", "v"], [0])
    assert {(row.pool, row.allocation) for row in rows} == {("b300", ""), ("b300", "p")}
    documents = as_documents(rows)
    assert [("allocation" in row, row["pool"]) for row in documents] == [(bool(row.allocation), "b300") for row in rows]
    head, pool, project = pools_table(documents, "v", "base")
    assert head[:2] == ("pool", "project")
    assert pool[:5] == ("b300", "all", "- -> -", "", "50.0 % -> 70.0 %")
    assert project[:3] == ("b300", "p", "50.0 % -> 70.0 %")
    low, high = project[3].split(" to ")
    assert 19 < float(low.rstrip(" %")) <= 20 <= float(high.rstrip(" %")) < 21
    assert project[4:] == ("", "")
