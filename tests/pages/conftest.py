"""Results and pages that the tests of this folder share, and a real browser: installed where it is missing."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from allocator.pages import build_report
from allocator.replay.bootstrap import FEWEST_DAYS
from tests import debian
from tests.builders import HOUR
from tests.pages.material import DAYS, quiet, write_replay, write_study

assert DAYS >= FEWEST_DAYS, "the sample is to have intervals"


@pytest.fixture(scope="session")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A replay with stops."""
    stops = {10 * HOUR: ["gang01"], 50 * HOUR: ["gang07"]}
    return write_replay(tmp_path_factory.mktemp("results") / "ours", stops=stops)


@pytest.fixture(scope="session")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A replay of the same trace without stops."""
    return write_replay(tmp_path_factory.mktemp("results") / "theirs")


@pytest.fixture(scope="session")
def one(ours: Path) -> str:
    """The page of one replay."""
    return build_report([ours])


@pytest.fixture(scope="session")
def both(ours: Path, theirs: Path) -> str:
    """The page of a comparison."""
    return build_report([theirs, ours], title="Before & after")


@pytest.fixture(scope="session")
def nothing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A replay in which nothing happened: its pictures are few."""
    return write_replay(tmp_path_factory.mktemp("results") / "nothing", what=quiet())


@pytest.fixture(scope="session")
def study(tmp_path_factory: pytest.TempPathFactory, nothing: Path) -> Path:
    """A what-if study."""
    return write_study(tmp_path_factory.mktemp("study") / "rack", {"base": nothing, "rack": nothing})


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Debian's Chromium without a window. Root cannot have its sandbox; what it shows is our own.

    It is gone after the module: while Playwright is there an event loop runs, and tests of other folders run their own.
    """
    reason = debian.install(["chromium"], ["chromium"], "Chromium")
    if reason is not None:
        warnings.warn(f"THE TESTS IN A REAL BROWSER DO NOT RUN: {reason}", stacklevel=1)
        pytest.skip(f"no real browser: {reason}")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        yield browser
        browser.close()
