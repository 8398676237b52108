"""Colours can be told apart, also by those who see fewer of them, and text can be read."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import numpy.typing as npt
import pytest

from allocator.pages.palette import COLOURS, NUM_NAMED, light, variables, with_variables

Floats = npt.NDArray[np.float64]

# How colours look in linear RGB without one kind of cones: Machado, Oliveira and Fernandes (2009), severity 1.
SIGHT = {
    "all": np.eye(3),
    "protan": np.array([[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]),
    "deutan": np.array([[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]),
}
# Ottosson's Oklab (2020), from linear RGB.
TO_LMS = np.array(
    [[0.41222147, 0.53633254, 0.05144599], [0.2119035, 0.68069955, 0.10739696], [0.08830246, 0.28171884, 0.6299787]]
)
TO_LAB = np.array(
    [[0.21045426, 0.79361779, -0.00407205], [1.9779985, -2.42859221, 0.45059371], [0.02590404, 0.78277177, -0.80867577]]
)


def linear(colour: str) -> Floats:
    values = np.array([int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)])
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def lab(colour: str, sight: str) -> Floats:
    found: Floats = TO_LAB @ np.cbrt(TO_LMS @ np.clip(SIGHT[sight] @ linear(colour), 0, 1))
    return found


def contrast(one: str, other: str) -> float:
    """Contrast of the Web Content Accessibility Guidelines."""
    low, high = sorted(float(linear(colour) @ [0.2126, 0.7152, 0.0722]) for colour in (one, other))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize("dark", [False, True])
def test_colours_of_allocations_are_apart(sight: str, dark: bool) -> None:
    colours = [COLOURS[f"c{place}"][dark] for place in range(NUM_NAMED)]
    nearest = min(float(np.linalg.norm(lab(one, sight) - lab(other, sight))) for one, other in combinations(colours, 2))
    assert nearest > 0.07


@pytest.mark.parametrize("dark", [False, True])
def test_text_can_be_read(dark: bool) -> None:
    def colour(role: str) -> str:
        return COLOURS[role][dark]

    pairs = [(text, ground) for text in ("ink", "muted", "link") for ground in ("paper", "panel")]
    pairs += [("onpale", f"seq{place}") for place in range(3)] + [("ondeep", f"seq{place}") for place in range(3, 6)]
    for text, ground in pairs:
        assert contrast(colour(text), colour(ground)) >= 4.5 - 0.6 * text.startswith("on"), (text, ground)
    lightness = [lab(colour(f"seq{place}"), "all")[0] for place in range(6)]
    assert sorted(lightness, reverse=not dark) == lightness


def test_each_colour_of_a_drawing_becomes_its_own_variable() -> None:
    assert len({light(role) for role in COLOURS}) == len(COLOURS)
    drawn = "".join(light(role).upper() for role in COLOURS)
    assert with_variables(drawn) == "".join(f"var(--{role})" for role in COLOURS)
    assert with_variables("#123456") == "#123456"
    assert "--ink: #e6ebf2;" in variables(dark=True)
