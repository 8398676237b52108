"""The colours of reports, by what they say, on a light page and on a dark one.

Pictures are drawn in the light colours; in the page each becomes a variable of the style sheet, so that one picture serves
both.
The eight that stand for allocations are those of Okabe and Ito, chosen to be told apart with the common kinds of colour
blindness; the eighth is black on a light page and white on a dark one. No colour says anything alone: allocations have a
letter as well, lines a dash, marks a shape.
"""

from __future__ import annotations

import re

COLOURS: dict[str, tuple[str, str]] = {
    "paper": ("#ffffff", "#11161d"),
    "panel": ("#f4f6f9", "#1a212b"),
    "ink": ("#18202b", "#e6ebf2"),
    "muted": ("#55606f", "#a3afbf"),
    "grid": ("#dde2e9", "#2d3744"),
    "link": ("#0a58a8", "#7db8f5"),
    "c0": ("#0072b2", "#2b8fd0"),
    "c1": ("#e69f00", "#e6a519"),
    "c2": ("#009e73", "#13a67d"),
    "c3": ("#d55e00", "#e06c14"),
    "c4": ("#56b4e9", "#7cc8f2"),
    "c5": ("#cc79a7", "#d48db5"),
    "c6": ("#f0e442", "#f1e75c"),
    "c7": ("#16161d", "#f7f7fa"),
    "rest": ("#a7aeb8", "#6b7583"),
    "idle": ("#eceff3", "#232c38"),
    "got": ("#2a7ab9", "#4a9bd9"),
    "free": ("#a9cfec", "#2b567c"),
    "waste": ("#c65102", "#ee8a45"),
    "seq0": ("#dbe9f6", "#17324d"),
    "seq1": ("#b0d0ea", "#1f5480"),
    "seq2": ("#74b2da", "#2c76b0"),
    "seq3": ("#3583bd", "#5ba3d9"),
    "seq4": ("#12599b", "#98c9ed"),
    "seq5": ("#08306b", "#dceefb"),
    "onpale": ("#0b2540", "#f3f8fd"),
    "ondeep": ("#fefefe", "#0a1a2b"),
}
"""Light and dark value of each role. Light values differ, because that is how a picture's colours are told apart."""

NUM_NAMED = 8
"""Allocations with a colour and a letter of their own; all others are shown together."""

LETTERS = "ABCDEFGH"
REST, IDLE, DOWN, DRAIN = "+", ".", "x", "d"
"""Letters of what is no named allocation: all others, nobody, a dead node, one that is wanted empty."""

ROLE_OF = {letter: f"c{place}" for place, letter in enumerate(LETTERS)}
ROLE_OF |= {REST: "rest", IDLE: "idle", DOWN: "muted", DRAIN: "grid"}
"""The colour of a letter."""

MARKS = {REST: "+", IDLE: "·", DOWN: "✕", DRAIN: "\N{EN DASH}"}
"""How people see the letters of what is no named allocation."""


def light(role: str) -> str:
    """The colour in which a picture is drawn."""
    return COLOURS[role][0]


def with_variables(svg: str) -> str:
    """The same picture with variables for colours."""
    return _HEX.sub(lambda found: _VARIABLES.get(found[0].lower(), found[0]), svg)


def variables(*, dark: bool) -> str:
    """The declarations of all variables."""
    return " ".join(f"--{role}: {pair[dark]};" for role, pair in COLOURS.items())


_HEX = re.compile(r"#[0-9a-fA-F]{6}\b")
_VARIABLES = {pair[0]: f"var(--{role})" for role, pair in COLOURS.items()}
