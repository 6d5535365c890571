"""How values are written: columns in one unit, recorded text without harm, numbers, devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from traceview.document import numbers
from traceview.document.columns import cell_texts
from traceview.document.model import Column, column, table
from traceview.document.sanitize import sanitize
from traceview.document.vocabulary import PARTS, STATES, thread_name, thread_words

MS = 10**9
THREADS = (thread_name, thread_words)


def gpus(*ordinals: int) -> list[str]:
    return [f"GPU:{ordinal}" for ordinal in ordinals]


@pytest.mark.parametrize(
    ("column", "written"),
    [
        (
            column("time", "", [0, 3_000, 12_340_000, 4 * MS, 40 * MS, 669 * MS, None, "left out"]),
            ["0", "<0.001 ms", "0.012 ms", "4.00 ms", "40.0 ms", "669 ms", "–", "left out"],
        ),
        (column("time", "", [-3_000, -40 * MS]), [">-0.001 ms", "-40.0 ms"]),
        (column("bytes", "", [36, 4_000_000, 6_208_853_760]), ["<0.001 GB", "0.004 GB", "6.21 GB"]),
        (column("rate", "", [500_000_000, 12_500_000_000]), ["0.500 GB/s", "12.5 GB/s"]),
        (column("share", "", [0.125, None]), ["12.5%", "–"]),
        (column("look", "", [STATES["input"]]), ["input"]),
        (column("name", "", ["model/dense", None]), ["model/dense", "–"]),
    ],
)
def test_a_column_has_one_unit(column: Column, written: list[str]) -> None:
    assert cell_texts(column) == written


def test_a_table_has_no_column_without_a_value() -> None:
    empty = (column("name", "b", [None, ""]), None)
    (only,) = table("label", [column("count", "a", [0, 1]), *empty])
    assert [column.heading for column in only.columns] == ["a"]
    assert table("label", empty) == ()


def test_the_middle_of_a_long_text_is_left_out() -> None:
    text = sanitize("a" * 5000 + "b" * 5000)
    assert (len(text), text[0], text[-1]) == (2000, "a", "b")


def test_looks_can_be_told_apart() -> None:
    for classified in (STATES, PARTS):
        letters = [look.letter for look in classified.values()]
        assert all(letters)
        assert len(set(letters)) == len(letters)


@pytest.mark.parametrize(
    ("written", "value", "text"),
    [
        # Recorded text is harmless.
        (sanitize, "model/dense:MatMul – é", "model/dense:MatMul – é"),
        (sanitize, "a\nb\x1b[1m\u202e", r"a\nb\x1b[1m\u202e"),
        (sanitize, "\ud800", r"\ud800"),
        # A thread that bears the name of the program is one of Python.
        *(
            (thread, name, "Python thread")
            for thread in THREADS
            for name in ("traceview", "python3.11")
        ),
        *((thread_name, name, name) for name in ("tf_Compute/17", "traceview_worker")),
        *((thread_words, name, f"thread {name}") for name in ("tf_Compute/17", "traceview_worker")),
        # A time has three significant digits.
        (numbers.time, None, "–"),
        (numbers.time, 9_996, "10.0 ns"),
        (numbers.time, 999_500, "1.00 µs"),
        (numbers.time, 668_866_125_000, "669 ms"),
        (numbers.time, 1234 * 10**12, "1,234 s"),
        (numbers.time, -1000, "-1.00 ns"),
        # Sizes are decimal.
        (numbers.size, 36, "36 B"),
        (numbers.size, 1_960, "1.96 kB"),
        (numbers.size, 6_208_853_760, "6.21 GB"),
        (numbers.rate, 1_960, "1.96 kB/s"),
        # Only nothing is 0%, and only all is 100%.
        (numbers.share, None, "–"),
        (numbers.share, 0.0, "0%"),
        (numbers.share, 0.0004, "<0.1%"),
        (numbers.share, 0.0005, "0.1%"),
        (numbers.share, 0.9994, "99.9%"),
        (numbers.share, 0.9996, ">99.9%"),
        (numbers.share, 1.0, "100%"),
        (numbers.share, 1.5, "150%"),
        (numbers.number, None, "–"),
        (numbers.number, 1487, "1,487"),
        (numbers.number, 0.53, "0.53"),
        (numbers.date, None, None),
        (numbers.date, 0, "1970-01-01 00:00:00 UTC"),
        (numbers.date, 1_767_312_000_000_000_000, "2026-01-02 00:00:00 UTC"),
        (numbers.date, 2**63, "2262-04-11 23:47:16 UTC"),
        (numbers.date, 10**21, None),
        # Devices are joined by their numbers.
        (numbers.joined_devices, gpus(0, 2, 3, 5, 6, 7), "GPU:0, 2, 3, 5–7"),
        (numbers.joined_devices, ["a/GPU:0", "a/GPU:1", "b/GPU:0"], "a/GPU:0, 1; b/GPU:0"),
        (numbers.joined_devices, ["replica:9", "replica:10", "replica:11"], "replica:9–11"),
        # A long list is cut.
        (numbers.listed, ["a", "b", "c"], "a, b and c"),
        (numbers.listed, [*"abcdefghij"], "a, b, c, d, e, f, g, h and 2 more"),
        (numbers.listed, [*"abcdefgh", "i" * 16], f"a, b, c, d, e, f, g, h and {'i' * 16}"),
        (numbers.listed, [*"abcdefgh", "i" * 17], "a, b, c, d, e, f, g, h and 1 more"),
        (numbers.listed, gpus(*range(12)), "GPU:0–11"),
        (numbers.listed, gpus(*range(0, 18, 2)), f"{', '.join(gpus(*range(0, 16, 2)))} and GPU:16"),
        (
            numbers.listed,
            gpus(*range(0, 20, 2), 19, 20),
            f"{', '.join(gpus(*range(0, 16, 2)))} and 4 more",
        ),
    ],
)
def test_a_value_is_written(written: Callable[[Any], str | None], value: Any, text: str) -> None:
    assert written(value) == text


def test_a_word_is_no_number() -> None:
    assert numbers.measured("status", "empty") == "empty"
