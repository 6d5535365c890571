"""`traceview show devices` and `traceview show balance` list every device, in every format."""

from __future__ import annotations

import csv
import json
from io import StringIO
from pathlib import Path

import pytest
from msgspec.structs import asdict

import traceview
from scripts.scenarios import SCENARIOS
from tests.command import Command

pytestmark = pytest.mark.usefixtures("no_terminal")


@pytest.fixture
def logs(tmp_path: Path) -> str:
    """Two GPUs; GPU 1 has more to do in each of four steps."""
    SCENARIOS["more_work"]().write(tmp_path / "logs")
    return str(tmp_path / "logs")


@pytest.fixture
def one_gpu(tmp_path: Path) -> str:
    SCENARIOS["plain"]().write(tmp_path / "one")
    return str(tmp_path / "one")


def table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(StringIO(text)))


@pytest.mark.parametrize("name", ["devices", "balance"])
def test_every_format_has_the_same_rows(command: Command, logs: str, name: str) -> None:
    rows = table(command("show", name, logs, "--format", "csv").out)
    data = json.loads(command("show", name, logs, "--format", "json").out)
    assert [row["device"] for row in rows] == ["GPU:0", "GPU:1"]
    assert [list(row) for row in data["rows"]] == [list(row) for row in rows]
    for row, line in zip(data["rows"], rows, strict=True):
        assert {key: "" if value is None else str(value) for key, value in row.items()} == line


def test_devices_hold_all_of_device_time(command: Command, logs: str) -> None:
    rows = json.loads(command("show", "devices", logs, "--format", "json").out)["rows"]
    results = traceview.analyze(logs).results
    assert results.device_time is not None
    for row, known in zip(rows, results.device_time.devices, strict=True):
        for key, value in asdict(known).items():
            if key == "total_ps":
                assert {name: row[f"{name}_total_ps"] for name in value} == value
            else:
                assert row[key] == value, key
    rows = json.loads(command("show", "balance", logs, "--format", "json").out)["rows"]
    assert [row["straggler_reason"] for row in rows] == [None, "work"]
    assert [row["longer_ratio"] for row in rows] == pytest.approx([-0.25, 1 / 3])


def test_devices_that_did_nothing_have_a_row(command: Command, tmp_path: Path) -> None:
    SCENARIOS["two_of_eight"]().write(tmp_path)
    rows = table(command("show", "devices", str(tmp_path), "--format", "csv").out)
    assert [row["status"] for row in rows] == ["active"] * 2 + ["empty"] * 6
    assert [
        row["device"]
        for row in table(command("show", "balance", str(tmp_path), "--format", "csv").out)
    ] == ["GPU:0", "GPU:1"]


@pytest.mark.parametrize("width", [40, 60, 80, 120])
@pytest.mark.parametrize("name", ["devices", "balance"])
def test_a_terminal_shows_what_fits(command: Command, logs: str, name: str, width: int) -> None:
    lines = command("show", name, logs, "--width", str(width)).out.splitlines()
    assert max(map(len, lines)) <= width
    assert lines[0].startswith("run run1")
    assert [line.split()[0] for line in lines if line.startswith("GPU:")] == ["GPU:0", "GPU:1"]


def words_of(command: Command, *arguments: str) -> str:
    return " ".join(command(*arguments, "--width", "120").out.split())


def test_balance_compares_the_devices(command: Command, logs: str) -> None:
    words = words_of(command, "show", "balance", logs)
    assert "2 GPUs compute 70.0% of the time" in words
    assert "GPU:1 40.0 ms +33.3% 0 10.0 ms" in words


def test_without_common_clocks_no_overlap_is_known(command: Command, tmp_path: Path) -> None:
    SCENARIOS["clocks_without_collectives"]().write(tmp_path)
    assert "clocks of the hosts" in words_of(command, "show", "balance", str(tmp_path))


def test_one_device_may_be_chosen(command: Command, logs: str) -> None:
    for name in ("devices", "balance"):
        rows = table(command("show", name, logs, "--format", "csv", "--device", "1").out)
        assert [row["device"] for row in rows] == ["GPU:1"]
        assert "\nGPU:0 " not in command("show", name, logs, "--device", "1").out


def test_of_very_many_devices_a_terminal_shows_the_outliers(
    command: Command, tmp_path: Path
) -> None:
    SCENARIOS["sixteen_hosts_of_eight"]().write(tmp_path)
    lines = command("show", "devices", str(tmp_path)).out.splitlines()
    rows = [line for line in lines if "/GPU:" in line.partition(" ")[0]]
    assert "128 rows" in lines[0]
    assert 0 < len(rows) < 16
    assert "other devices: busy " in " ".join(lines)
    assert len(table(command("show", "devices", str(tmp_path), "--format", "csv").out)) == 128


def test_a_baseline_shows_where_the_time_goes(command: Command, logs: str, one_gpu: str) -> None:
    """One GPU computes 40 of 50 ms, two 35 in the mean: the step is as long."""
    rows = [
        line.split()
        for line in command("analyze", logs, "--full", "--baseline", one_gpu).out.splitlines()
    ]
    assert ["compute", "40.0", "ms", "35.0", "ms", "-5.00", "ms"] in rows
    assert any(row[:3] == ["waiting", "for", "a"] and "+5.00" in row for row in rows)


def test_a_baseline_that_is_not_there_is_an_error(command: Command, logs: str) -> None:
    done = command("analyze", logs, "--baseline", "nowhere")
    assert (done.code, done.out) == (3, "")
    assert "nowhere: no such file or directory" in done.err
    assert command("analyze", logs, "--baseline", "").code == 2


def test_without_compute_there_is_nothing_to_compare(command: Command, tmp_path: Path) -> None:
    SCENARIOS["gpu_planes_empty"]().write(tmp_path)
    done = command("show", "balance", str(tmp_path), "--format", "csv")
    assert done.code == 0
    assert table(done.out) == []
    assert done.err == "traceview: no device computed in the window\n"
    assert len(table(command("show", "devices", str(tmp_path), "--format", "csv").out)) == 2
