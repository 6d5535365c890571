"""`traceview show collectives` lists each device of each collective, in every format."""

from __future__ import annotations

import csv
import json
from io import StringIO
from pathlib import Path

import pytest

from scripts.scenarios import SCENARIOS
from tests.command import Command

pytestmark = pytest.mark.usefixtures("no_terminal")


@pytest.fixture
def logs(tmp_path: Path) -> str:
    """Four GPUs, one sum in each of four steps; in step k GPU k comes 6 ms late."""
    SCENARIOS["late_by_turns"]().write(tmp_path / "logs")
    return str(tmp_path / "logs")


def table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(StringIO(text)))


def test_every_format_has_the_same_rows(command: Command, logs: str) -> None:
    rows = table(command("show", "collectives", logs, "--format", "csv").out)
    data = json.loads(command("show", "collectives", logs, "--format", "json").out)
    assert len(rows) == 16
    assert [list(row) for row in data["rows"]] == [list(row) for row in rows]
    late = [row for row in rows if row["is_last"] == "True" or row["is_last"] == "true"]
    assert [(row["collective"], row["step"], row["device"]) for row in late] == [
        (str(number), str(number), f"GPU:{number}") for number in range(4)
    ]
    assert {(row["wait_ps"], row["transfer_ps"]) for row in late} == {("0", "2000000000")}
    assert {row["bytes"] for row in rows} == {"100000000"}
    assert [row["wait_ps"] for row in data["rows"]] == [int(row["wait_ps"]) for row in rows]


def test_parquet(command: Command, logs: str, tmp_path: Path) -> None:
    target = tmp_path / "table.parquet"
    assert command("show", "collectives", logs, "-o", str(target)).code == 0
    assert target.read_bytes()[:4] == b"PAR1"


@pytest.mark.parametrize("width", [40, 80, 160])
def test_terminal(command: Command, logs: str, width: int) -> None:
    lines = command("show", "collectives", logs, "--width", str(width)).out.splitlines()
    assert all(len(line) <= width for line in lines if "GPU" in line)
    of_devices = [line for line in lines if "GPU:" in line and "last" in line.split()]
    assert len(of_devices) == 4


def test_what_is_shown_can_be_chosen(command: Command, logs: str) -> None:
    def chosen(*arguments: str) -> list[tuple[str, str]]:
        shown = command("show", "collectives", logs, "--format", "csv", *arguments).out
        return [(row["collective"], row["device"]) for row in table(shown)]

    assert chosen("--device", "2") == [(str(number), "GPU:2") for number in range(4)]
    assert chosen("--steps", "1:2") == [("1", f"GPU:{ordinal}") for ordinal in range(4)]
    assert len(chosen("--top", "1")) == 4


def test_json_says_what_is_left_out(command: Command, logs: str) -> None:
    data = json.loads(command("show", "collectives", logs, "--format", "json", "--top", "1").out)
    assert (len(data["rows"]), data["left_out_count"]) == (4, 12)


def test_without_collectives(command: Command, fixtures: Path) -> None:
    done = command("show", "collectives", str(fixtures / "plain-1"), "--format", "csv")
    assert (done.code, len(done.out.splitlines())) == (0, 1)
    assert "fewer than two devices" in done.err
