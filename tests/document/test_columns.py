"""Tests how the values of a column are written: in one unit, and with a dash where nothing was measured."""

from __future__ import annotations

import pytest

from traceview.document.columns import cell_texts
from traceview.document.model import (
    Bar,
    Column,
    Link,
    counts,
    links,
    looks,
    names,
    rates,
    shares,
    sizes,
    table,
    times,
)
from traceview.document.vocabulary import STATES

MS = 10**9


@pytest.mark.parametrize(
    ("column", "written"),
    [
        (
            times("", [0, 3_000, 12_340_000, 4 * MS, 40 * MS, 669 * MS, None, "left out"]),
            ["0", "<0.001 ms", "0.012 ms", "4.00 ms", "40.0 ms", "669 ms", "–", "left out"],
        ),
        (times("", [-3_000, -40 * MS]), [">-0.001 ms", "-40.0 ms"]),
        (times("", [0, 999]), ["0", "999 ps"]),
        (sizes("", [36, 4_000_000, 6_208_853_760]), ["<0.001 GB", "0.004 GB", "6.21 GB"]),
        (sizes("", [0, 36]), ["0", "36 B"]),
        (rates("", [500_000_000, 12_500_000_000]), ["0.500 GB/s", "12.5 GB/s"]),
        (shares("", [0.125, None]), ["12.5%", "–"]),
        (counts("", [1_234_567]), ["1,234,567"]),
        (looks("", [STATES["input"]]), ["input"]),
        (names("", ["model/dense", None]), ["model/dense", "–"]),
        (
            links("", [(Link("finding 1", "a"), Link("finding 2", "b")), ()]),
            ["finding 1, finding 2", ""],
        ),
    ],
)
def test_a_column_has_one_unit(column: Column, written: list[str]) -> None:
    assert cell_texts(column) == written


def test_a_table_has_no_column_without_a_value() -> None:
    empty = (names("b", [None, ""]), Column("c", "bar", (Bar(()), Bar(()))), None)
    (only,) = table("label", [counts("a", [0, 1]), *empty])
    assert [column.heading for column in only.columns] == ["a"]
    assert table("label", empty) == ()
