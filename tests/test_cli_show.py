"""`show` has the same options for all tables, and says of which tables an option has no meaning."""

from __future__ import annotations

import csv
import json
from io import StringIO
from pathlib import Path

import pytest

from scripts.scenarios import SCENARIOS
from tests.command import Command
from traceview.cli.commands.show import NAMES
from traceview.cli.tables import TABLES

pytestmark = pytest.mark.usefixtures("no_terminal")

SORTS = {
    "gaps": "duration",
    "steps": "duration",
    "devices": "busy",
    "ops": "count",
    "input": "self",
    "copies": "bytes",
    "collectives": "wait",
    "balance": "compute",
    "findings": "gpu_time",
}
"""A column of each table, without its unit."""

UNITS = ("", "_ps", "_ps_per_step", "_ratio")


@pytest.fixture(scope="module")
def logs(fixtures: Path) -> str:
    return str(fixtures / "slow-input-2")


def rows_of(command: Command, table: str, *arguments: str) -> list[dict[str, str]]:
    done = command("show", table, *arguments, "--format", "csv")
    assert done.code == 0, done.err
    return list(csv.DictReader(StringIO(done.out)))


@pytest.mark.parametrize("table", TABLES)
def test_every_table_is_sorted_and_limited(table: str, command: Command, tmp_path: Path) -> None:
    SCENARIOS["late_shard"]().write(tmp_path)
    logs = str(tmp_path)
    every = rows_of(command, table, logs)
    rows = rows_of(command, table, logs, "--sort", SORTS[table])
    assert sorted(map(str, rows)) == sorted(map(str, every))
    names = [SORTS[table] + unit for unit in UNITS] if rows else []
    by_device: dict[str, list[float]] = {}
    for row in rows:
        key = next(name for name in names if name in row)
        group = row["device"] if table in ("ops", "copies") else ""
        by_device.setdefault(group, []).append(float(row[key] or "-inf"))
    if table not in ("steps", "collectives"):
        for values in by_device.values():
            assert values == sorted(values, reverse=True)
    fewer = rows_of(command, table, logs, "--sort", SORTS[table], "--top", "1")
    assert fewer == [row for row in rows if row in fewer]
    assert len(fewer) <= len(rows)
    text = command("show", table, logs, "--sort", SORTS[table], "--top", "1")
    assert text.code == 0
    assert text.out.splitlines()[0].startswith("run run1 ")
    wrong = command("show", table, logs, "--sort", "no_such")
    assert (wrong.code, "--sort no_such: no such choice" in wrong.err) == (2, True)


def test_the_longest_step_comes_first_with_all_its_devices(command: Command, logs: str) -> None:
    rows = rows_of(command, "steps", logs, "--sort", "input_ps", "--top", "1")
    every = rows_of(command, "steps", logs)
    most = max(every, key=lambda row: int(row["input_ps"]))
    assert [row["number"] for row in rows] == [most["number"]] * 2
    out = command("show", "steps", logs, "--sort", "input_ps", "--top", "1").out
    assert f"2 rows, {len(every) - 2} left out" in out


@pytest.mark.parametrize("table", [name for name, kind in TABLES.items() if kind.length])
def test_short_rows_are_left_out(table: str, command: Command, logs: str) -> None:
    column = TABLES[table].length
    every = rows_of(command, table, logs)
    if not every:
        return
    least = sorted(int(row[column]) for row in every)[len(every) // 2] // 1000
    kept = rows_of(command, table, logs, "--min", f"{least}ns")
    assert sorted(map(str, kept)) == sorted(
        str(row) for row in every if int(row[column]) >= least * 1000
    )


def test_findings_of_a_state_and_of_a_device(command: Command, tmp_path: Path) -> None:
    SCENARIOS["two_of_eight"]().write(tmp_path)
    logs = str(tmp_path)
    codes = [row["code"] for row in rows_of(command, "findings", logs)]
    report = json.loads(command("analyze", logs, "--format", "json").out)
    assert codes == [finding["code"] for finding in report["findings"]]
    of_state = rows_of(command, "findings", logs, "--state", "no_work")
    assert [row["code"] for row in of_state] == ["unused-gpu"]
    assert "unused-gpu" not in [
        row["code"] for row in rows_of(command, "findings", logs, "--device", "0")
    ]
    assert "unused-gpu (" in command("show", "findings", logs).out


@pytest.mark.parametrize(
    ("table", "option", "others"),
    [
        ("input", ("--device", "0"), "gaps, steps, devices, ops, copies, collectives"),
        ("steps", ("--state", "input"), "gaps, ops, copies, findings"),
        ("devices", ("--min", "1us"), "gaps, steps, ops, input, copies, collectives"),
        ("runs", ("--steps", "1:2"), ", ".join(TABLES)),
        ("hang", ("--sort", "pid"), ", ".join((*TABLES, "runs"))),
    ],
)
def test_an_option_without_a_meaning_is_one_clear_error(
    table: str, option: tuple[str, str], others: str, command: Command, logs: str
) -> None:
    done = command("show", table, logs, *option)
    assert (done.code, done.out) == (2, "")
    error, hint = done.err.splitlines()
    assert error == f"traceview: error: {option[0]} has no meaning for show {table}"
    assert hint.startswith(f"hint: it works with {others}")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("gap", "."), "TABLE gap: no such choice\nhint: did you mean gaps? "),
        (("gaps", ".", "--state", "compute"), "--state compute: no such choice"),
        (("gaps", ".", "--workers", "0"), "--workers 0: neither a number nor an address"),
        (("hang", ".", "--format", "csv"), "show hang writes no csv"),
    ],
)
def test_wrong_usage(arguments: tuple[str, ...], message: str, command: Command) -> None:
    done = command("show", *arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"traceview: error: {message}")


def test_the_runs_are_a_table_too(command: Command, fixtures: Path) -> None:
    rows = rows_of(command, "runs", str(fixtures))
    assert len(rows) == 8
    assert [row["run"] for row in rows if row["is_default"] == "True"] == [
        "slow-input-2/2026_11_21_07_57_19"
    ]
    assert [row["bytes"] for row in rows_of(command, "runs", str(fixtures), "--sort", "bytes")] == (
        sorted((row["bytes"] for row in rows), key=int, reverse=True)
    )


def test_no_hang_is_an_error(command: Command, tmp_path: Path) -> None:
    done = command("show", "hang", str(tmp_path))
    assert (done.code, done.out) == (3, "")
    assert done.err.startswith(f"traceview: error: no report of a hang below {tmp_path}\n")


def test_the_names_are_in_the_help(command: Command) -> None:
    words = " ".join(command("show", "--help").out.split())
    assert all(name in words for name in NAMES)
