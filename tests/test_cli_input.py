"""`traceview show input` gives every stage, in every format."""

from __future__ import annotations

import csv
import json
from io import BytesIO, StringIO
from pathlib import Path

import pandas as pd
import pytest

import traceview
from scripts.scenarios import SCENARIOS
from scripts.scenarios.model import marked_steps, new_trace
from tests.command import Command

pytestmark = pytest.mark.usefixtures("no_terminal")


@pytest.fixture
def logs(tmp_path: Path) -> str:
    """A slow map behind a prefetch, without a GPU."""
    SCENARIOS["slow_map"]().write(tmp_path / "logs")
    return str(tmp_path / "logs")


def test_csv_is_the_table_of_the_library(command: Command, logs: str) -> None:
    text = command("show", "input", logs, "--format", "csv").out
    rows = list(csv.DictReader(StringIO(text)))
    frame = traceview.load(logs).input_stages
    assert list(rows[0]) == list(frame.columns)
    for key in ("calls", "total_ps", "self_ps", "waiting_ps", "slow_count"):
        assert [int(row[key]) for row in rows] == frame[key].tolist()
    assert [row["name"] for row in rows] == frame["name"].tolist()


def test_every_format_has_the_same_rows(command: Command, logs: str, tmp_path: Path) -> None:
    for name in ("stages.json", "stages.parquet"):
        command("show", "input", logs, "--top", "2", "-o", str(tmp_path / name))
    data = json.loads((tmp_path / "stages.json").read_text("utf-8"))
    frame = pd.read_parquet(BytesIO((tmp_path / "stages.parquet").read_bytes()))
    assert data["left_out_count"] == 2
    assert [row["self_ps"] for row in data["rows"]] == frame["self_ps"].tolist()
    assert [row["buffer_limit"] for row in data["rows"]] == [2, None]


@pytest.mark.parametrize("width", [40, 80, 120])
def test_a_terminal_shows_what_fits(command: Command, logs: str, width: int) -> None:
    lines = command("show", "input", logs, "--top", "2", "--width", str(width)).out.splitlines()
    assert all(len(line) <= width or "traceview " in line for line in lines)
    assert "2 rows, 2 left out" in " ".join(lines[:2])


def test_only_some_steps(command: Command, logs: str) -> None:
    rows = json.loads(command("show", "input", logs, "--format", "json", "--steps", "1:3").out)[
        "rows"
    ]
    assert {row["calls"] for row in rows} == {2}


def test_without_a_pipeline_it_says_so(command: Command, tmp_path: Path) -> None:
    SCENARIOS["plain"]().write(tmp_path)
    result = command("show", "input", str(tmp_path), "--format", "csv")
    assert len(result.out.splitlines()) == 1
    assert "no tf.data iterator was recorded" in result.err


def test_names_from_the_trace_do_nothing_to_a_terminal(command: Command, tmp_path: Path) -> None:
    trace = new_trace()
    for step in marked_steps(trace):
        step.host("IteratorGetNextOp::DoCompute", 1, 10)
        step.host("Iterator::Root", 1, 10, {"id": 1})
        step.host("Iterator::Root::[red]\x1b[31mMap", 1, 9, {"id": 2, "parent_id": 1})
    trace.write(tmp_path)
    for arguments in (["show", "input"], ["analyze", "--full"]):
        out = command(*arguments, str(tmp_path)).out
        assert "\x1b" not in out
        assert "[red]" in out
