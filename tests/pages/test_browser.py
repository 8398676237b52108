"""The page in a real browser: it loads without a word of complaint, everybody can use it, and it looks as the reader wishes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page


@pytest.fixture(scope="module")
def file(one: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where the page of one replay is."""
    return _written(one, tmp_path_factory.mktemp("page"))


@pytest.fixture(scope="module")
def comparison(both: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where the page of a comparison is."""
    return _written(both, tmp_path_factory.mktemp("page"))


def _written(page: str, folder: Path) -> str:
    path = folder / "report.html"
    path.write_text(page, encoding="utf-8")
    return path.as_uri()


@contextmanager
def opened(browser: Browser, file: str, *, width: int = 1100, **options: Any) -> Iterator[tuple[Page, list[str]]]:
    """The page, and what the browser had to complain about or wanted from elsewhere."""
    page = browser.new_page(viewport={"width": width, "height": 800}, **options)
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: said.append(request.url) if request.url.split(":")[0] not in ("file", "data") else None)
    page.goto(file)
    try:
        yield page, said
    finally:
        page.close()


def test_it_loads_offline_without_a_complaint(chromium: Browser, file: str, record_property: Any) -> None:
    with opened(chromium, file) as (page, said):
        assert said == []
        record_property("load_ms", page.evaluate("performance.timing.loadEventEnd - performance.timing.navigationStart"))
        assert page.evaluate("document.querySelectorAll('.evil, body b:not([class])').length") == len(
            page.query_selector_all(".cell b")
        )


def test_landmarks_and_headings(chromium: Browser, file: str) -> None:
    with opened(chromium, file) as (page, _):
        for role in ("banner", "navigation", "main", "contentinfo"):
            assert page.get_by_role(role).count() == 1, role
        levels = page.evaluate("[...document.querySelectorAll('h1,h2,h3,h4')].map(each => +each.tagName[1])")
        assert levels[0] == 1
        assert levels.count(1) == 1
        assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
        for figure in page.query_selector_all("figure"):
            assert figure.query_selector("figcaption")
            assert figure.query_selector("details table")
        names = page.evaluate("[...document.querySelectorAll('nav a')].map(each => each.getAttribute('href'))")
        assert len(names) >= 8
        assert all(page.query_selector(name) for name in names)


@pytest.mark.parametrize(("which", "scheme", "width"), [("file", "dark", 360), ("comparison", "light", 1100)])
def test_no_barrier_is_found(chromium: Browser, request: pytest.FixtureRequest, which: str, scheme: Any, width: int) -> None:
    with opened(chromium, request.getfixturevalue(which), width=width, color_scheme=scheme) as (page, _):
        if which == "file":  # the numbers of all figures are built alike: some are enough, and many take long
            page.evaluate("document.querySelectorAll('details').forEach((each, place) => each.open = place % 4 === 0)")
        found = Axe().run(page, context={"exclude": [["svg"]]})  # hidden from readers by ear; colours: test_palette
        assert found.violations_count == 0, found.generate_report()


def test_the_keyboard_reaches_everything_in_order(chromium: Browser, file: str) -> None:
    with opened(chromium, file) as (page, _):
        seen = []
        for _ in range(40):
            page.keyboard.press("Tab")
            seen.append(
                page.evaluate(
                    "(e => e.id || e.getAttribute('href') || e.className || e.tagName.toLowerCase())(document.activeElement)"
                )
            )
            if seen[-1] == "run1-floor-hour":
                break
        assert seen[0] == "#content"
        assert [name for name in seen if name.startswith("#")][1:3] == ["#summary", "#metrics"]
        assert "scroll" in seen
        assert "summary" in seen
        assert seen[-1] == "run1-floor-hour"
        before = page.inner_text("#run1-floor-shown")
        page.keyboard.press("Home")
        page.keyboard.press("ArrowRight")
        after = page.inner_text("#run1-floor-shown")
        assert before != after == page.get_attribute("#run1-floor-hour", "aria-valuetext")


def test_the_script_says_the_same_as_the_page_without_it(chromium: Browser, file: str) -> None:
    bars = "e.querySelector('i').style.background.replaceAll(' ', '')"
    look = f"[...document.querySelectorAll('.cell')].map(e => e.innerText + {bars})"
    words = "[...document.querySelectorAll('.floor td:last-child')].map(e => e.textContent)"
    with opened(chromium, file) as (page, _):
        with_script = (page.evaluate(look), page.evaluate(words))
        page.fill("#run1-floor-hour", "0")
        assert page.evaluate(words) != with_script[1]
    with opened(chromium, file, java_script_enabled=False) as (page, _):
        assert (page.evaluate(look), page.evaluate(words)) == with_script
        assert not page.is_visible("#run1-floor-hour")


def test_it_follows_the_wishes_of_its_reader(chromium: Browser, file: str) -> None:
    shots = {}
    for scheme in ("light", "dark"):
        with opened(chromium, file, color_scheme=scheme, reduced_motion="reduce") as (page, _):
            shots[scheme] = page.screenshot()
            paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert (paper == "rgb(255, 255, 255)") == (scheme == "light")
            band = page.evaluate("getComputedStyle(document.querySelector('#run1-held svg [style*=--c0]')).fill")
            assert band == {"light": "rgb(0, 114, 178)", "dark": "rgb(43, 143, 208)"}[scheme]
            assert page.evaluate("getComputedStyle(document.documentElement).scrollBehavior") == "auto"
            page.emulate_media(media="print")
            assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert shots["light"] != shots["dark"]


def test_it_fits_a_phone(chromium: Browser, file: str) -> None:
    with opened(chromium, file, width=360) as (page, _):
        page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        assert page.is_visible("#run1-held .narrow svg")
        assert not page.is_visible("#run1-held .wide svg")


def test_it_can_be_printed(chromium: Browser, file: str) -> None:
    with opened(chromium, file) as (page, _):
        assert page.pdf(format="A4").startswith(b"%PDF")
