"""Tests by computation that slices can be read and told apart, on either ground and with either weakness of sight.

Contrast as in WCAG 2.2, "relative luminance"; simulation by Machado, Oliveira and Fernandes (2009) at severity 1;
difference as the distance in CIE L*a*b* under D65.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Final

import numpy as np
import pytest

from traceview.base.stats import Float64Array
from traceview.document.vocabulary import COLOURS, PARTS, SLICE_COLOURS, STATES, STEP_KINDS, Look

LEAST_DIFFERENCE = 12.0
LEAST_CONTRAST = 4.5
SLICES = {
    style: colour for style, colour in SLICE_COLOURS.items() if style not in ("slice-ink", "hatch")
}
SIGHTS: Final[dict[str, Float64Array]] = {
    "full": np.eye(3),
    "protanopia": np.array(
        [
            (0.152286, 1.052583, -0.204868),
            (0.114503, 0.786281, 0.099216),
            (-0.003882, -0.048116, 1.051998),
        ]
    ),
    "deuteranopia": np.array(
        [
            (0.367322, 0.860646, -0.227968),
            (0.280085, 0.672501, 0.047413),
            (-0.011820, 0.042940, 0.968881),
        ]
    ),
}
"""What linear light looks like, by sight."""

XYZ: Final = np.array(
    [
        (0.4124564, 0.3575761, 0.1804375),
        (0.2126729, 0.7151522, 0.0721750),
        (0.0193339, 0.1191920, 0.9503041),
    ]
)
WHITE: Final = np.array([0.95047, 1.0, 1.08883])


def linear(colour: str) -> Float64Array:
    """The light of `#rrggbb`."""
    light = np.array([int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)])
    return np.where(light <= 0.04045, light / 12.92, ((light + 0.055) / 1.055) ** 2.4)


def contrast(first: str, second: str) -> float:
    weights = np.array([0.2126, 0.7152, 0.0722])
    darker, lighter = sorted(float(linear(colour) @ weights) for colour in (first, second))
    return (lighter + 0.05) / (darker + 0.05)


def lab(colour: str, sight: str) -> Float64Array:
    xyz = XYZ @ np.clip(SIGHTS[sight] @ linear(colour), 0, 1) / WHITE
    x, y, z = np.where(xyz > 216 / 24389, np.cbrt(xyz), (24389 / 27 * xyz + 16) / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def difference(first: str, second: str, sight: str) -> float:
    """The distance of two colours as a sight shows them."""
    return float(np.linalg.norm(lab(first, sight) - lab(second, sight)))


@pytest.mark.parametrize("style", SLICES)
def test_text_on_every_slice_can_be_read(style: str) -> None:
    assert contrast(SLICE_COLOURS[style], SLICE_COLOURS["slice-ink"]) >= LEAST_CONTRAST
    assert contrast(SLICE_COLOURS["hatch"], SLICE_COLOURS["slice-ink"]) >= LEAST_CONTRAST


@pytest.mark.parametrize("ground", [0, 1])
@pytest.mark.parametrize("sight", SIGHTS)
@pytest.mark.parametrize("looks", [STATES, PARTS, STEP_KINDS], ids=["states", "parts", "steps"])
def test_neighbours_can_be_told_apart(looks: Mapping[str, Look], sight: str, ground: int) -> None:
    """What is hatched differs by that from what is not."""
    for first, second in combinations(looks.values(), 2):
        if (
            first.style != second.style
            and first.words != second.words
            and first.is_hatched == second.is_hatched
        ):
            colours = COLOURS[first.style][ground], COLOURS[second.style][ground]
            assert difference(*colours, sight) >= LEAST_DIFFERENCE, (first.key, second.key)


@pytest.mark.parametrize("ground", [0, 1])
def test_texts_and_marks_can_be_read_on_the_ground(ground: int) -> None:
    for style in ("ink", "soft", "mark"):
        for below in ("ground", "row"):
            assert contrast(COLOURS[style][ground], COLOURS[below][ground]) >= LEAST_CONTRAST


@pytest.mark.parametrize("sight", SIGHTS)
@pytest.mark.parametrize("ground", [0, 1])
def test_a_slice_differs_from_the_empty_row(sight: str, ground: int) -> None:
    for style, colour in SLICES.items():
        assert difference(colour, COLOURS["row"][ground], sight) >= 9, style
