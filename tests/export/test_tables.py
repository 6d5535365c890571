"""A table is the same in Parquet, in CSV and as a DataFrame, and no spreadsheet runs what is in it."""

from __future__ import annotations

import csv
import io
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import traceview
from scripts.scenarios import SCENARIOS
from traceview import Trace
from traceview.analysis.facts.selection import select
from traceview.analysis.measures.context import Context
from traceview.analysis.workload.ops import OpRow
from traceview.report import tables
from traceview.report.tables import TABLE_NAMES, csv_of, parquet_of, table_of
from traceview.trace.device import table as device_table
from traceview.trace.device.table import (
    Table,
    category,
    flags,
    floats,
    frame_of,
    integers,
    record_columns,
    table,
    texts,
    whole,
)
from traceview.trace.model import StepRange

RUNS = ("A", "B", "F", "two_hosts", "no_gpu_plane")


def tables_of(trace: Trace) -> dict[str, Table]:
    context = Context(trace, select(trace, "trace"))
    return {name: table_of(context, name) for name in TABLE_NAMES}


def as_parquet(table: Table) -> pd.DataFrame:
    return pd.read_parquet(io.BytesIO(parquet_of(table)))


def cells(frame: pd.DataFrame, column: str) -> list[Any]:
    """The values of a column, None for missing ones."""
    values = frame[column].astype(object)
    return list(values.where(values.notna(), None))


@pytest.fixture(params=RUNS)
def trace(request: pytest.FixtureRequest, tmp_path: Path) -> Trace:
    SCENARIOS[request.param]().write(tmp_path / "logs")
    return traceview.load(tmp_path / "logs")


def test_tables_are_the_frames_of_the_window(trace: Trace) -> None:
    """Made without pandas, yet the same cells and types."""
    tables = tables_of(trace)
    assert [table.name for table in tables.values()] == list(TABLE_NAMES)
    frames = {name: trace.table(name, window="trace") for name in TABLE_NAMES}
    frames["device_events"] = trace.device_events.reset_index(names="row")
    frames["host_events"] = trace.host_events.reset_index(names="row")
    for name, frame in frames.items():
        made = as_parquet(tables[name])
        if name in ("device_events", "host_events"):
            inside = frame["row"].isin(made["row"])
            assert inside.sum() == len(made) >= 0.9 * len(frame)
            frame = frame[inside]
        for column in frame.columns:
            assert cells(made, column) == cells(frame, column), (name, column)
            types = (str(made[column].dtype), str(frame[column].dtype))
            if types[0] != "category":
                assert types[0] == types[1], (name, column)


def test_only_what_overlaps_the_window_is_in_it(tmp_path: Path) -> None:
    SCENARIOS["B"]().write(tmp_path / "logs")
    trace = traceview.load(tmp_path / "logs")
    whole_run = tables_of(trace)
    chosen = StepRange(1, 3)
    selection = select(trace, steps=chosen)
    (window,) = selection.windows.values()
    for each in (table_of(Context(trace, selection), name) for name in TABLE_NAMES):
        frame = as_parquet(each)
        assert len(frame) <= whole_run[each.name].count
        if each.name in ("device_events", "host_events", "copy_events", "gaps"):
            assert 0 < len(frame) < whole_run[each.name].count
            assert (frame["start_ps"] < window.end_ps).all()
            assert (frame["start_ps"] + frame["duration_ps"] >= window.start_ps).all()
        if each.name == "steps":
            assert sorted(set(frame["number"])) == [1, 2]


def test_rows_of_tables_name_rows_of_others(tmp_path: Path) -> None:
    SCENARIOS["B"]().write(tmp_path / "logs")
    made = {
        name: as_parquet(one) for name, one in tables_of(traceview.load(tmp_path / "logs")).items()
    }
    events = made["device_events"].set_index("row")
    calls = made["host_events"].set_index("row")
    linked = events[events["launch"].notna()]
    assert len(linked)
    launches = calls.loc[linked["launch"]]
    assert (launches["correlation_id"].to_numpy() == linked["correlation_id"].to_numpy()).all()
    gaps = made["gaps"][made["gaps"]["after"].notna()]
    ends = set(zip(gaps["device"], gaps["start_ps"] + gaps["duration_ps"], strict=True))
    assert ends <= set(zip(events["device"], events["start_ps"], strict=True))
    assert made["devices"]["idle_ps"].sum() == made["gaps"]["duration_ps"].sum()


def test_names_that_fit_in_no_encoding_are_replaced() -> None:
    """Of two hosts whose files are called so, both have a row, under one name."""
    codes = np.array([0, 1, -1])
    table = Table(
        "t",
        3,
        (category("host", codes, ["a\udcff", "a\udcfe"]), texts("text", ["\udc80", None, "b"])),
    )
    for frame in (frame_of(table), as_parquet(table)):
        assert cells(frame, "host") == ["a\ufffd", "a\ufffd", None]
        assert cells(frame, "text") == ["\ufffd", None, "b"]


def test_a_table_without_rows_or_labels_has_its_types() -> None:
    nothing = np.empty(0, dtype=np.int64)
    table = Table("t", 0, (whole("n", nothing, nothing == 1), category("c", nothing, ["a"])))
    schema = pq.read_schema(io.BytesIO(parquet_of(table)))
    assert str(schema.field("n").type) == "int64"
    assert b"".join(csv_of(table)) == b"n,c\n"
    frame = as_parquet(Table("t", 2, (category("c", np.array([-1, -1]), []),)))
    assert (str(frame["c"].dtype), cells(frame, "c")) == ("category", [None, None])


def test_csv_is_the_parquet(fixtures: Path) -> None:
    for each in tables_of(traceview.load(fixtures / "keras-fit-2")).values():
        frame = as_parquet(each)
        content = b"".join(csv_of(each)).decode()
        heads, *rows = csv.reader(io.StringIO(content, newline=""))
        for place, head in enumerate(heads):
            told = ["" if cell is None else str(cell) for cell in cells(frame, head)]
            assert [row[place].removeprefix("'") for row in rows] == [
                text.removeprefix("'") for text in told
            ], (each.name, head)


# CSV


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
        # Where numbers have a comma, a spreadsheet divides at semicolons, whatever quotes say.
        ("a;=1+1", "a;'=1+1"),
        ('a; "＝1+1', "a;' \"＝1+1"),
        ("a\n@b", "a\n'@b"),
        ("a\r+b", "a\r'+b"),
        *((name, name) for name in ('a,b;"c"', "line\nbreak", "1+1", "表", "f32[2,-1]", ";")),
    ],
)
def test_no_cell_of_other_languages_becomes_a_formula(name: str, shown: str) -> None:
    (row,) = parsed(text_of(ops(op(name, None, 1000))))
    assert row["op"] == shown


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
