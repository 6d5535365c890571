"""Is the CSV a table that every reader takes as one, and no spreadsheet runs?"""

from __future__ import annotations

import csv
from io import StringIO

import pytest

from tests.reports import op
from traceview.analysis.ops import OpRow
from traceview.render.csv import columns_of, render


def parsed(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(StringIO(text)))


def test_columns_are_those_of_the_frame() -> None:
    names = "device class op op_type kernel count total_ps self_ps mean_ps median_ps p95_ps"
    assert (*names.split(), "share_ratio", "bytes") == columns_of(OpRow)


def test_what_is_not_known_is_empty() -> None:
    (row,) = parsed(render([op(None, "sgemm", 4000, share_ratio=None)], OpRow))
    assert (row["op"], row["share_ratio"], row["bytes"]) == ("", "", "")
    assert (row["kernel"], row["total_ps"], row["class"]) == ("sgemm", "4000", "compute")


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", "\n"])
def test_no_name_becomes_a_formula(start: str) -> None:
    (row,) = parsed(render([op(f"{start}1+1", f"{start}cmd", 1000)], OpRow))
    assert row["op"].startswith("'")
    assert row["kernel"].startswith("'")


@pytest.mark.parametrize("name", ['a,b;"c"', "line\nbreak", "1+1", "表"])
def test_other_names_stay_as_they_are(name: str) -> None:
    (row,) = parsed(render([op(name, None, 1000)], OpRow))
    assert row["op"] == name


def test_lone_surrogates_can_be_written() -> None:
    assert "\ufffd" in render([op("\ud800", None, 1000)], OpRow).encode("utf-8").decode()


def test_a_terminal_gets_no_control_characters() -> None:
    rows = [op("\x1b[31mred\u202e", "a\nb", 1000)]
    assert "\x1b[31mred\u202e" in render(rows, OpRow)
    (row,) = parsed(render(rows, OpRow, escaped=True))
    assert (row["op"], row["kernel"]) == (r"\x1b[31mred\u202e", r"a\nb")
