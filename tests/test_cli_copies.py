"""`traceview show copies` lists what issues copies, in every format."""

from __future__ import annotations

import csv
import json
from io import StringIO
from pathlib import Path

import pytest

import traceview
from scripts.scenarios import SCENARIOS
from tests.command import Command

pytestmark = pytest.mark.usefixtures("no_terminal")


@pytest.fixture
def logs(tmp_path: Path) -> str:
    """One GPU, four steps; in each a copy down and one up with an op on the CPU between them."""
    SCENARIOS["cpu_op_between"]().write(tmp_path / "logs")
    return str(tmp_path / "logs")


def table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(StringIO(text)))


def test_every_format_has_the_same_rows(command: Command, logs: str) -> None:
    rows = table(command("show", "copies", logs, "--format", "csv").out)
    data = json.loads(command("show", "copies", logs, "--format", "json").out)
    assert [(row["direction"], row["op"], row["bytes"], row["exposed_ps"]) for row in rows] == [
        ("d2h", "model/dense/MatMul/_5", "4000000", "4000000000"),
        ("h2d", "model/where/Where/_7", "2000000", "4000000000"),
    ]
    assert [list(row) for row in data["rows"]] == [list(row) for row in rows]
    assert [row["bytes"] for row in data["rows"]] == [int(row["bytes"]) for row in rows]
    results = traceview.analyze(logs).results
    assert results.transfers is not None
    (device,) = results.transfers.devices
    assert [source.op for source in device.top_sources] == [row["op"] for row in rows]


def test_terminal(command: Command, logs: str) -> None:
    shown = command("show", "copies", logs, "--width", "80").out
    lines = shown.splitlines()
    assert lines[0] == "run run1 · window 200 ms · 2 rows · longest exposed first"
    assert all(len(line) <= 80 for line in lines)


def test_what_is_shown_can_be_chosen(command: Command, logs: str) -> None:
    def ways(*arguments: str) -> list[str]:
        shown = command("show", "copies", logs, "--format", "csv", *arguments).out
        return [row["direction"] for row in table(shown)]

    assert ways("--state", "h2d") == ["h2d"]
    assert ways("--state", "h2d", "--state", "d2d") == ["h2d"]
    assert ways("--top", "1") == ["d2h"]
    assert ways("--device", "0") == ["d2h", "h2d"]
    (row,) = table(
        command("show", "copies", logs, "--format", "csv", "--steps", "1:2", "--state", "h2d").out
    )
    assert (row["count"], row["exposed_ps"]) == ("1", "1000000000")


def test_json_says_what_is_left_out(command: Command, logs: str) -> None:
    data = json.loads(command("show", "copies", logs, "--format", "json", "--top", "1").out)
    assert (len(data["rows"]), data["left_out_count"]) == (1, 1)


def test_an_unknown_device_is_an_error(command: Command, logs: str) -> None:
    done = command("show", "copies", logs, "--device", "7")
    assert (done.code, done.out) == (2, "")


def test_without_gpus(command: Command, fixtures: Path) -> None:
    done = command("show", "copies", str(fixtures / "custom-loop-2"), "--format", "csv")
    assert (done.code, len(done.out.splitlines())) == (0, 1)
    assert done.err == "traceview: not applicable: there is no GPU\n"
