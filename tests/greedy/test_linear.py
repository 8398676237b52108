"""The bound that duals prove: below every feasible point whatever the solver did, and as good as the optimum when it ended."""

from __future__ import annotations

import highspy
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.models.greedy import linear
from allocator.models.greedy.linear import LinearModel
from allocator.topology.layout import IntArray


def model_of(seed: int) -> tuple[LinearModel, IntArray, IntArray, IntArray]:
    """A random model in which all columns at 1 are allowed, with its costs, rows and entries."""
    rng = np.random.default_rng(seed)
    num_rows, num_columns = int(rng.integers(1, 7)), int(rng.integers(1, 9))
    cost, matrix = rng.integers(-9, 10, num_columns), rng.integers(-4, 5, (num_rows, num_columns))
    sums, free = matrix.sum(axis=1), rng.integers(0, 3, num_rows)
    model = LinearModel()
    model.columns(cost.astype(np.float64), np.full(num_columns, 3))
    lower, upper = np.where(free == 1, -np.inf, sums), np.where(free == 2, np.inf, sums + 2.0)
    model.rows(lower, upper)
    row, column = np.nonzero(matrix)
    model.put(row, column, matrix[row, column])
    model.load()
    return model, cost, row, column


@given(st.integers(0, 1 << 32))
def test_the_duals_prove_the_optimum(seed: int) -> None:
    model, cost, row, _ = model_of(seed)
    if not len(row):
        return
    found = model.solve(model.num_columns)
    assert found is not None
    assert model.proven_bound() <= found[0] <= cost.sum() + 1e-9
    assert model.proven_bound() >= found[0] - 1e-6


@given(st.integers(0, 1 << 32), st.integers(0, 2))
def test_a_solve_that_is_cut_short_still_proves_a_bound(seed: int, iterations: int) -> None:
    model, _, row, _ = model_of(seed)
    if not len(row):
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(linear._OPTIONS, "simplex_iteration_limit", iterations)
        short, *_ = model_of(seed)
    short.solve(short.num_columns)
    found = model.solve(model.num_columns)
    assert found is not None
    assert short.proven_bound() <= found[0] + 1e-9


def test_entries_of_one_place_add_up() -> None:
    model = LinearModel()
    columns = model.columns(np.array([-1.0]), np.array([10]))
    rows = model.rows(-np.inf, np.array([6.0]))
    model.put(rows, columns, 1.0)
    model.put(rows, columns, 1.0)
    model.load()
    assert model.solve(1) == (-3.0, np.array([3.0]))
    assert -3.0 - 1e-9 <= model.proven_bound() <= -3.0


def test_without_an_optimum_there_is_no_answer() -> None:
    model = LinearModel()
    columns = model.columns(np.array([1.0]), np.array([1]))
    model.put(model.rows(2.0, np.array([np.inf])), columns, 1.0)
    model.load()
    assert model.solve(1) is None
    assert model._solver.getModelStatus() == highspy.HighsModelStatus.kInfeasible
