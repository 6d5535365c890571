"""Tests that everything a report classifies has a name, a letter and a colour."""

from __future__ import annotations

from traceview.document.vocabulary import CAUSES, CLASSES, COLOURS, PARTS, STEP_KINDS, look_of
from traceview.trace.cause import Cause


def test_every_cause_has_a_look() -> None:
    assert list(CAUSES) == [cause.key for cause in Cause]
    assert all(look.meaning for look in CAUSES.values())


def test_looks_can_be_told_apart() -> None:
    for looks in (CAUSES, PARTS):
        letters = [look.letter for look in looks.values()]
        assert all(letters)
        assert len(set(letters)) == len(letters)


def test_what_charts_draw_has_a_colour() -> None:
    looks = [*CAUSES.values(), *CLASSES.values(), *STEP_KINDS.values(), *PARTS.values()]
    assert {look.style for look in looks} <= set(COLOURS)


def test_a_key_of_a_later_version_is_its_own_name() -> None:
    assert look_of(CAUSES, "gravity").words == "gravity"
