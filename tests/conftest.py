"""What all tests share: how long random runs are, and which tests run only in a long fuzz run."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

from allocator.models.process import shared_process
from tests.uncounted import uncounted

FUZZ = os.environ.get("ALLOCATOR_FUZZ") == "1"
"""True in the long runs of `make fuzz` and `make soak`."""

T = TypeVar("T", bound=Callable[..., Any])

_SLOW_IS_FINE = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile("test", deadline=None, max_examples=50, derandomize=True, suppress_health_check=_SLOW_IS_FINE)
settings.register_profile("fuzz", deadline=None, max_examples=2000, suppress_health_check=_SLOW_IS_FINE)
settings.load_profile("fuzz" if FUZZ else "test")


def also_long(test: T) -> T:
    """Mark a test with a short form and a long one: `make soak` selects the long one, every other run has the short one."""
    return pytest.mark.fuzz(test) if FUZZ else test


@pytest.fixture(scope="session")
def fuzzing() -> bool:
    """Whether this is a long fuzz run."""
    return FUZZ


@pytest.fixture(autouse=True)
def _logs_go_where_they_went() -> Iterator[None]:
    """A command that runs in this process may send all logs to a standard error that is closed after its test."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture(autouse=True)
def _children_of_slow_tests_count_no_lines(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A slow test starts its own solver process, since a warm one would go on counting, and leaves none to the next test."""
    slow = request.node.get_closest_marker("slow") is not None
    if slow:
        shared_process().close()
        for name in os.environ.keys() - uncounted().keys():
            monkeypatch.delenv(name)
    yield
    if slow:
        shared_process().close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what is marked fuzz, unless this is a long fuzz run.

    Counting lines takes as long as running them: they are counted in the first case of each test that is neither slow nor
    random. The others run through the same code, or through code that the count then does not know of: coverage is at least
    what it says.
    """
    if FUZZ:
        return
    counted = set[str]()
    skip = pytest.mark.skip(reason="a long random run: make soak")
    for item in items:
        name = item.nodeid.partition("[")[0]
        if item.get_closest_marker("slow") or name in counted or is_hypothesis_test(getattr(item, "obj", None)):
            item.add_marker("no_cover")
        counted.add(name)
        if item.get_closest_marker("fuzz"):
            item.add_marker(skip)
