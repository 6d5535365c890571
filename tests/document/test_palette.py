"""Tests by computation that slices can be read and told apart, on either ground and with either weakness of sight."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

import pytest

from tests.colour_vision import SIGHTS, ciede2000, contrast, difference
from traceview.document.vocabulary import (
    COLOURS,
    PARTS,
    SLICE_COLOURS,
    STATES,
    STEP_KINDS,
    Look,
)

LEAST_DIFFERENCE = 10.0
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


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ((50, 2.6772, -79.7751), (50, 0, -82.7485), 2.0425),
        ((50, -1.0, 2.0), (50, 0.0, 0.0), 2.3669),
        ((50, 2.5, 0.0), (73, 25.0, -18.0), 27.1492),
        ((22.7233, 20.0904, -46.6940), (23.0331, 14.9730, -42.5619), 2.0373),
        ((2.0776, 0.0795, -1.1350), (0.9033, -0.0636, -0.5514), 0.9082),
    ],
)
def test_the_measure_is_right(
    first: tuple[float, float, float], second: tuple[float, float, float], expected: float
) -> None:
    # Test data of Sharma, Wu and Dalal.
    assert ciede2000(first, second) == pytest.approx(expected, abs=5e-5)
    assert contrast("#ffffff", "#000000") == pytest.approx(21)


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
        and (apart := difference(colour, COLOURS["row"][ground], sight)) < 5
    ]
    assert close == []


def test_letters_cannot_be_mistaken() -> None:
    letters = [look.letter for look in STATES.values()]
    assert not set(letters) & set("l1O0|")
    assert all(letter.isupper() or not letter.isalnum() for letter in letters)
    assert STATES["latency"].letter == "T"
