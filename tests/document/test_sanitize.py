"""Tests that recorded text is shown without harm."""

from __future__ import annotations

import pytest

from traceview.document.sanitize import encodable, sanitize, shortened


@pytest.mark.parametrize(
    ("text", "ascii_text"),
    [
        ("model/dense:MatMul", "model/dense:MatMul"),
        ("a\nb\x1b[1m\u202e", r"a\nb\x1b[1m\u202e"),
        ("µ – é", r"u - \xe9"),
        ("\ud800", r"\ud800"),
    ],
)
def test_ascii(text: str, ascii_text: str) -> None:
    assert sanitize(text, unicode=False) == ascii_text


def test_the_middle_of_a_long_text_is_left_out() -> None:
    text = sanitize("a" * 5000 + "b" * 5000)
    assert (len(text), text[0], text[-1]) == (2001, "a", "b")
    assert shortened("abcdefghij", 5) == "ab…ij"


def test_a_lone_surrogate_is_replaced() -> None:
    assert encodable("a\udcff").encode() == "a\ufffd".encode()
