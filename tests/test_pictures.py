"""The pictures of the documentation show what is decided today, and say the same to those who cannot see them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from docs._pictures.paint import as_svg, legend
from docs._pictures.scenes import SCENES
from docs._pictures.stage import Picture

DOCS = Path(__file__).resolve().parents[1] / "docs"
TITLE = "{http://www.w3.org/2000/svg}title"


@pytest.mark.parametrize(("name", "scene"), SCENES.items())
def test_a_picture_is_what_is_decided(name: str, scene: Callable[[], Picture]) -> None:
    kept = (DOCS / "pictures" / f"{name}.svg").read_text(encoding="utf-8")
    assert kept == as_svg(scene()), "make pictures draws them anew; see that the text of docs/contract.md still holds"


def test_the_page_shows_every_picture_and_says_what_it_says() -> None:
    shown = dict(re.findall(r"!\[(.+)\]\(pictures/(.+)\.svg\)", (DOCS / "contract.md").read_text(encoding="utf-8")))
    files = sorted(path.stem for path in (DOCS / "pictures").iterdir())
    assert sorted(shown.values()) == files == sorted([*SCENES, "legend"])
    for text, name in shown.items():
        title = ElementTree.parse(DOCS / "pictures" / f"{name}.svg").getroot().find(TITLE)
        assert title is not None
        assert title.text == text


def test_the_legend_is_drawn_the_same_way() -> None:
    assert (DOCS / "pictures" / "legend.svg").read_text(encoding="utf-8") == legend()
