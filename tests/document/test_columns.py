"""Tests how values are written: columns in one unit, recorded text without harm, names for all that is classified, JSON in parts."""

from __future__ import annotations

import pytest

from traceview.document.columns import cell_texts
from traceview.document.model import Bar, Column, column, table
from traceview.document.sanitize import sanitize
from traceview.document.vocabulary import PARTS, STATES, thread_name, thread_words

MS = 10**9


@pytest.mark.parametrize(
    ("column", "written"),
    [
        (
            column("time", "", [0, 3_000, 12_340_000, 4 * MS, 40 * MS, 669 * MS, None, "left out"]),
            ["0", "<0.001 ms", "0.012 ms", "4.00 ms", "40.0 ms", "669 ms", "–", "left out"],
        ),
        (column("time", "", [-3_000, -40 * MS]), [">-0.001 ms", "-40.0 ms"]),
        (column("time", "", [0, 999]), ["0", "999 ps"]),
        (column("bytes", "", [36, 4_000_000, 6_208_853_760]), ["<0.001 GB", "0.004 GB", "6.21 GB"]),
        (column("bytes", "", [0, 36]), ["0", "36 B"]),
        (column("rate", "", [500_000_000, 12_500_000_000]), ["0.500 GB/s", "12.5 GB/s"]),
        (column("share", "", [0.125, None]), ["12.5%", "–"]),
        (column("count", "", [1_234_567]), ["1,234,567"]),
        (column("look", "", [STATES["input"]]), ["input"]),
        (column("name", "", ["model/dense", None]), ["model/dense", "–"]),
    ],
)
def test_a_column_has_one_unit(column: Column, written: list[str]) -> None:
    assert cell_texts(column) == written


def test_a_table_has_no_column_without_a_value() -> None:
    empty = (column("name", "b", [None, ""]), Column("c", "bar", (Bar(()), Bar(()))), None)
    (only,) = table("label", [column("count", "a", [0, 1]), *empty])
    assert [column.heading for column in only.columns] == ["a"]
    assert table("label", empty) == ()


@pytest.mark.parametrize(
    ("text", "harmless"),
    [
        ("model/dense:MatMul – é", "model/dense:MatMul – é"),
        ("a\nb\x1b[1m\u202e", r"a\nb\x1b[1m\u202e"),
        ("\ud800", r"\ud800"),
    ],
)
def test_recorded_text_is_harmless(text: str, harmless: str) -> None:
    assert sanitize(text) == harmless


def test_the_middle_of_a_long_text_is_left_out() -> None:
    text = sanitize("a" * 5000 + "b" * 5000)
    assert (len(text), text[0], text[-1]) == (2001, "a", "b")


def test_looks_can_be_told_apart() -> None:
    for classified in (STATES, PARTS):
        letters = [look.letter for look in classified.values()]
        assert all(letters)
        assert len(set(letters)) == len(letters)


@pytest.mark.parametrize(
    ("name", "words", "cell"),
    [
        ("traceview", "Python thread", "Python thread"),
        ("python3.11", "Python thread", "Python thread"),
        ("tf_Compute/17", "thread tf_Compute/17", "tf_Compute/17"),
        ("traceview_worker", "thread traceview_worker", "traceview_worker"),
    ],
)
def test_a_thread_that_bears_the_name_of_the_program_is_one_of_python(
    name: str, words: str, cell: str
) -> None:
    assert thread_words(name) == words
    assert thread_name(name) == cell
