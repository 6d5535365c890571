"""`traceview show ops` gives the whole table, in every format."""

from __future__ import annotations

import csv
import json
from io import BytesIO, StringIO
from pathlib import Path

import pandas as pd
import pytest

import traceview
from scripts.scenarios import SCENARIOS
from tests.command import Command
from traceview.cli.output import Target
from traceview.export import formats

pytestmark = pytest.mark.usefixtures("no_terminal")


@pytest.fixture
def logs(tmp_path: Path) -> str:
    """Two GPUs: kernels, a collective each, and copies on GPU 0."""
    SCENARIOS["B"]().write(tmp_path / "logs")
    return str(tmp_path / "logs")


def table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(StringIO(text)))


def test_csv_is_the_table_of_the_library(command: Command, logs: str) -> None:
    rows = table(command("show", "ops", logs, "--format", "csv", "--window", "trace").out)
    frame = traceview.load(logs).ops
    assert list(rows[0]) == list(frame.columns)
    for key in ("count", "total_ps", "self_ps", "mean_ps", "median_ps", "p95_ps"):
        assert [int(row[key]) for row in rows] == frame[key].tolist()
    assert [row["kernel"] for row in rows] == frame["kernel"].tolist()


def test_every_format_has_the_same_rows(command: Command, logs: str, tmp_path: Path) -> None:
    command("show", "ops", logs, "-o", str(tmp_path / "ops.csv"))
    command("show", "ops", logs, "-o", str(tmp_path / "ops.json"))
    rows = table((tmp_path / "ops.csv").read_text("utf-8"))
    data = json.loads((tmp_path / "ops.json").read_text("utf-8"))
    assert [int(row["total_ps"]) for row in rows] == [row["total_ps"] for row in data["rows"]]
    assert list(data["rows"][0]) == list(rows[0])
    shown = command("show", "ops", logs).out
    assert all(row["kernel"][:10] in shown for row in rows)
    assert "communication" in shown
    assert " collective" not in shown


def test_sort_top_class_and_device(command: Command, logs: str) -> None:
    def rows(*arguments: str) -> list[dict[str, str]]:
        return table(command("show", "ops", logs, "--format", "csv", *arguments).out)

    assert {row["device"] for row in rows("--device", "1")} == {"GPU:1"}
    assert {row["class"] for row in rows("--state", "d2d", "--state", "communication")} == {
        "d2d",
        "collective",
    }
    assert len(rows("--top", "1")) == 2
    for sort, key in (("total", "total_ps"), ("self", "self_ps"), ("count", "count")):
        values = [int(row[key]) for row in rows("--sort", sort, "--device", "GPU:0")]
        assert values == sorted(values, reverse=True)


def test_steps_narrow_the_table(command: Command, logs: str) -> None:
    rows = table(command("show", "ops", logs, "--format", "csv", "--steps", "1:2").out)
    assert {row["count"] for row in rows} == {"1"}


def test_json_says_what_is_left_out(command: Command, logs: str) -> None:
    whole = json.loads(command("show", "ops", logs, "--format", "json").out)
    data = json.loads(command("show", "ops", logs, "--format", "json", "--top", "1").out)
    assert whole["left_out_count"] == 0
    assert data["left_out_count"] == len(whole["rows"]) - 2
    assert data["windows"][0]["kind"] == "steps"


def test_no_device_event(command: Command, tmp_path: Path) -> None:
    SCENARIOS["gpu_planes_empty"]().write(tmp_path)
    done = command("show", "ops", str(tmp_path), "--format", "csv")
    assert (done.code, len(done.out.splitlines())) == (0, 1)
    assert done.err == "traceview: the trace holds no device event in the window\n"


def test_names_cannot_become_formulas(command: Command, tmp_path: Path) -> None:
    SCENARIOS["hostile_names"]().write(tmp_path)
    for row in table(command("show", "ops", str(tmp_path), "--format", "csv").out):
        for value in (row["op"], row["kernel"]):
            assert not value.startswith(("=", "+", "-", "@"))


def test_parquet_without_pyarrow_names_the_extra(
    command: Command, logs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(formats, "find_spec", lambda _: None)
    done = command("show", "ops", logs, "-o", "ops.parquet")
    assert (done.code, done.out) == (2, "")
    assert done.err.splitlines()[1] == "hint: pip install 'traceview[parquet]'"


def test_parquet_is_the_frame(command: Command, logs: str, tmp_path: Path) -> None:
    path = tmp_path / "ops.parquet"
    assert command("show", "ops", logs, "--window", "trace", "-o", str(path)).code == 0
    pd.testing.assert_frame_equal(
        pd.read_parquet(BytesIO(path.read_bytes())), traceview.load(logs).ops
    )


def test_parquet_is_not_shown_on_a_terminal(
    command: Command, logs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Target, "is_terminal", True)
    done = command("show", "ops", logs, "--format", "parquet")
    assert (done.code, done.out) == (2, "")


@pytest.mark.shared
def test_the_whole_table_of_bert(command: Command, shared_traces: Path) -> None:
    bert = str(shared_traces / "bert-8xV100")
    report = traceview.analyze(bert)
    assert report.results.ops
    assert (
        len(table(command("show", "ops", bert, "--format", "csv").out))
        == report.results.ops.row_count
    )
