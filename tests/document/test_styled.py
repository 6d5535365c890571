"""Tests that text is cut and written with the style of each of its characters."""

from __future__ import annotations

from traceview.document.page import Text, joined

STRIP = Text((("##", "green"), ("?", "dim"), ("?", "dim"), (" a b ", ""), ("c", "bold red cyan")))


def test_parts_of_one_style_are_one_sequence_and_the_last_colour_holds() -> None:
    shown = "\x1b[32m##\x1b[0m\x1b[2m??\x1b[0m a b \x1b[1;36mc\x1b[0m"
    assert STRIP.rendered(color=True) == shown
    assert STRIP.rendered(color=False) == "##?? a b c"


def test_blanks_at_the_end_are_not_written() -> None:
    text = joined([Text.of("a"), Text.of(" b ", "bright_red"), Text.of("  ")])
    assert text.rendered(color=True) == "a\x1b[91m b\x1b[0m"
    assert text.rendered(color=False) == "a b"


def test_pieces_keep_their_styles() -> None:
    assert [piece.parts for piece in STRIP.divided([1, 7])] == [
        (("#", "green"),),
        (("#", "green"), ("?", "dim"), ("?", "dim"), (" a", "")),
        (("b ", ""), ("c", "bold red cyan")),
    ]
    assert STRIP.with_text("x").parts == (("x", "green"),)
