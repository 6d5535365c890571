"""CSV is a table that every reader takes as one and no spreadsheet runs."""

from __future__ import annotations

import csv
from io import StringIO

import numpy as np
import pytest

from traceview.analysis.workload.ops import OpRow
from traceview.report import tables
from traceview.report.tables import csv_of
from traceview.trace.device import table as device_table
from traceview.trace.device.table import (
    Table,
    category,
    flags,
    floats,
    integers,
    record_columns,
    table,
    texts,
)


def op(
    name: str | None, kernel: str | None, total_ps: int, share_ratio: float | None = 0.5
) -> OpRow:
    times = dict.fromkeys(("total_ps", "mean_ps", "p95_ps"), total_ps)
    return OpRow(
        device="GPU:0",
        class_="compute",
        op=name,
        op_type=None,
        kernel=kernel,
        source_line=None,
        count=1,
        share_ratio=share_ratio,
        bytes=None,
        **times,
    )


def ops(*rows: OpRow) -> Table:
    return table("ops", *record_columns(OpRow, rows))


def text_of(rows: Table, *, is_escaped: bool = False) -> str:
    return b"".join(csv_of(rows, is_escaped=is_escaped)).decode()


def parsed(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(StringIO(text)))


@pytest.mark.parametrize("start", [*"=+-@＝＋－＠", "\t", "\r", "\n", " =", '"='])
def test_no_name_becomes_a_formula(start: str) -> None:
    (row,) = parsed(text_of(ops(op(f"{start}1+1", f"{start}cmd", 1000))))
    assert row["op"].startswith("'")
    assert row["kernel"].startswith("'")


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a;=1+1", "a;'=1+1"),
        (";=1+1", ";'=1+1"),
        ('a; "＝1+1', "a;' \"＝1+1"),
        ("a\n@b", "a\n'@b"),
        ("a\r+b", "a\r'+b"),
    ],
)
def test_no_cell_of_other_languages_becomes_a_formula(name: str, shown: str) -> None:
    """Where numbers have a comma, a spreadsheet divides at semicolons, whatever quotes say."""
    (row,) = parsed(text_of(ops(op(name, None, 1000))))
    assert row["op"] == shown


@pytest.mark.parametrize("name", ['a,b;"c"', "line\nbreak", "1+1", "表", "f32[2,-1]", "a;;b", ";"])
def test_other_names_stay_as_they_are(name: str) -> None:
    (row,) = parsed(text_of(ops(op(name, None, 1000))))
    assert row["op"] == name


def test_lone_surrogates_can_be_written() -> None:
    assert "\ufffd" in text_of(ops(op("\ud800", None, 1000)))


def test_a_terminal_gets_no_control_characters() -> None:
    rows = ops(op("\x1b[31mred\u202e", "a\nb", 1000))
    assert "\x1b[31mred\u202e" in text_of(rows)
    (row,) = parsed(text_of(rows, is_escaped=True))
    assert (row["op"], row["kernel"]) == (r"\x1b[31mred\u202e", r"a\nb")


@pytest.mark.parametrize("at_once", [1, 2, 3, 8])
def test_rows_in_parts(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not known is so in each part, and a text has the same cell in all."""
    rows = table(
        "all kinds",
        category("category", np.array([1, -1, 0, 1, -1]), ["a", "b"]),
        texts("text", [None, "a", "=", None, "a"]),
        floats("float", [None, 0.5, 1.5, 0.5, None]),
        flags("flag", [True, None, False, None, True]),
        integers("int", [-1, 2, None, 4, None]),
    )
    monkeypatch.setattr(tables, "_ROWS_AT_ONCE", at_once)
    monkeypatch.setattr(device_table, "_ROWS_AT_ONCE", at_once)
    assert text_of(rows).splitlines() == [
        "category,text,float,flag,int",
        "b,,,True,-1",
        ",a,0.5,,2",
        "a,'=,1.5,False,",
        "b,,0.5,,4",
        ",a,,True,",
    ]
    assert [list(row.values()) for row in rows.rows()] == [
        ["b", None, None, True, -1],
        [None, "a", 0.5, None, 2],
        ["a", "=", 1.5, False, None],
        ["b", None, 0.5, None, 4],
        [None, "a", None, True, None],
    ]
