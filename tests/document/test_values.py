"""How values are written: columns in one unit, recorded text without harm, numbers, devices."""

from __future__ import annotations

import pytest

from traceview.document import numbers
from traceview.document.columns import cell_texts
from traceview.document.model import Column, column, table
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
    empty = (column("name", "b", [None, ""]), None)
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
    assert (len(text), text[0], text[-1]) == (2000, "a", "b")


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


# Numbers and names of devices


@pytest.mark.parametrize(
    ("ps", "text"),
    [
        (None, "–"),
        (0, "0"),
        (999, "999 ps"),
        (1000, "1.00 ns"),
        (9_994, "9.99 ns"),
        (9_996, "10.0 ns"),
        (99_960, "100 ns"),
        (999_499, "999 ns"),
        (999_500, "1.00 µs"),
        (668_866_125_000, "669 ms"),
        (10**12, "1.00 s"),
        (1234 * 10**12, "1,234 s"),
        (-1000, "-1.00 ns"),
    ],
)
def test_a_time_has_three_significant_digits(ps: int | None, text: str) -> None:
    assert numbers.time(ps) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0"), (36, "36 B"), (1_960, "1.96 kB"), (6_208_853_760, "6.21 GB")]
)
def test_sizes_are_decimal(count: int, text: str) -> None:
    assert numbers.size(count) == text
    assert numbers.rate(count) == f"{text}/s"


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (None, "–"),
        (0.0, "0%"),
        (0.0004, "<0.1%"),
        (0.0005, "0.1%"),
        (0.125, "12.5%"),
        (0.9994, "99.9%"),
        (0.9996, ">99.9%"),
        (1.0, "100%"),
        (1.5, "150%"),
    ],
)
def test_only_nothing_is_0_percent_and_only_all_is_100(ratio: float | None, text: str) -> None:
    assert numbers.share(ratio) == text


def test_a_number_without_a_unit() -> None:
    assert [numbers.number(value) for value in (None, 1487, 0.53)] == ["–", "1,487", "0.53"]
    assert numbers.measured("status", "empty") == "empty"


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (None, None),
        (0, "1970-01-01 00:00:00 UTC"),
        (1_767_312_000_000_000_000, "2026-01-02 00:00:00 UTC"),
        (2**63, "2262-04-11 23:47:16 UTC"),
        (10**21, None),
    ],
)
def test_a_date(ns: int | None, text: str | None) -> None:
    assert numbers.date(ns) == text


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        (["GPU:0"], "GPU:0"),
        (["GPU:0", "GPU:2", "GPU:3", "GPU:5", "GPU:6", "GPU:7"], "GPU:0, 2, 3, 5–7"),
        (["a/GPU:0", "a/GPU:1", "b/GPU:0"], "a/GPU:0, 1; b/GPU:0"),
        (["replica:9", "replica:10", "replica:11"], "replica:9–11"),
    ],
)
def test_devices_are_joined_by_their_numbers(keys: list[str], text: str) -> None:
    assert numbers.joined_devices(keys) == text


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], ""),
        (["a"], "a"),
        (["a", "b", "c"], "a, b and c"),
        ([*"abcdefghi"], "a, b, c, d, e, f, g, h and i"),
        ([*"abcdefghij"], "a, b, c, d, e, f, g, h and 2 more"),
        ([*"abcdefgh", "i" * 16], f"a, b, c, d, e, f, g, h and {'i' * 16}"),
        ([*"abcdefgh", "i" * 17], "a, b, c, d, e, f, g, h and 1 more"),
        ([f"GPU:{n}" for n in range(9)], "GPU:0–8"),
        (
            [f"GPU:{n}" for n in (0, 2, 4, 6, 8, 10, 12, 14, 16)],
            "GPU:0, GPU:2, GPU:4, GPU:6, GPU:8, GPU:10, GPU:12, GPU:14 and GPU:16",
        ),
        (
            [f"GPU:{n}" for n in (0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 19, 20)],
            "GPU:0, GPU:2, GPU:4, GPU:6, GPU:8, GPU:10, GPU:12, GPU:14 and 4 more",
        ),
        ([f"GPU:{n}" for n in range(12)], "GPU:0–11"),
    ],
)
def test_a_long_list_is_cut(names: list[str], text: str) -> None:
    assert numbers.listed(names) == text
