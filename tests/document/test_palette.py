"""Tests by computation that slices can be read and told apart, on either ground and with either weakness of sight."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

import pytest

from tests.colour_vision import SIGHTS, contrast, difference
from traceview.document.vocabulary import COLOURS, PARTS, SLICE_COLOURS, STATES, STEP_KINDS, Look

LEAST_DIFFERENCE = 12.0
LEAST_CONTRAST = 4.5
NO_SLICE = ("slice-ink", "hatch")


def close_pairs(looks: Mapping[str, Look], sight: str, ground: int) -> list[tuple[str, str, float]]:
    """Pairs that are hard to tell apart; what is hatched differs by that from what is not."""
    return [
        (first.key, second.key, apart)
        for first, second in combinations(looks.values(), 2)
        if first.style != second.style
        and first.words != second.words
        and first.is_hatched == second.is_hatched
        and (
            apart := difference(COLOURS[first.style][ground], COLOURS[second.style][ground], sight)
        )
        < LEAST_DIFFERENCE
    ]


@pytest.mark.parametrize("style", [style for style in SLICE_COLOURS if style not in NO_SLICE])
def test_text_on_every_slice_can_be_read(style: str) -> None:
    assert contrast(SLICE_COLOURS[style], SLICE_COLOURS["slice-ink"]) >= LEAST_CONTRAST
    assert contrast(SLICE_COLOURS["hatch"], SLICE_COLOURS["slice-ink"]) >= LEAST_CONTRAST


@pytest.mark.parametrize("ground", [0, 1])
@pytest.mark.parametrize("sight", SIGHTS)
@pytest.mark.parametrize("looks", [STATES, PARTS, STEP_KINDS], ids=["states", "parts", "steps"])
def test_neighbours_can_be_told_apart(looks: Mapping[str, Look], sight: str, ground: int) -> None:
    assert close_pairs(looks, sight, ground) == []


@pytest.mark.parametrize("ground", [0, 1])
def test_texts_and_marks_can_be_read_on_the_ground(ground: int) -> None:
    for style in ("ink", "soft", "mark"):
        for below in ("ground", "row"):
            assert contrast(COLOURS[style][ground], COLOURS[below][ground]) >= LEAST_CONTRAST


@pytest.mark.parametrize("sight", SIGHTS)
@pytest.mark.parametrize("ground", [0, 1])
def test_a_slice_differs_from_the_empty_row(sight: str, ground: int) -> None:
    close = [
        (style, apart)
        for style, colour in SLICE_COLOURS.items()
        if style not in NO_SLICE
        and (apart := difference(colour, COLOURS["row"][ground], sight)) < 9
    ]
    assert close == []
