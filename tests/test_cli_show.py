"""`show` has the same options for all tables: rows that are equal in every format, chosen, sorted, and harmless."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from io import BytesIO, StringIO
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pytest

import traceview
from scripts.cuda_trace import MS
from scripts.scenarios import SCENARIOS
from scripts.scenarios.collectives import all_reduce
from scripts.scenarios.model import Step, marked_steps, new_trace
from tests.command import Command
from tests.reports import known
from tests.sidecars import write_sidecar
from traceview.base.errors import UsageError
from traceview.base.units import picoseconds
from traceview.cli.output import Target
from traceview.report import tables
from traceview.report.tables import TABLES

pytestmark = pytest.mark.usefixtures("no_terminal")


class Rows(NamedTuple):
    """A scenario that fills a table, a column to sort by, and those to add rows up by."""

    scenario: str
    sort: str
    by: str = ""


ROWS = {
    "gaps": Rows("input_and_callbacks", "duration_ps", "step,state"),
    "steps": Rows("input_and_callbacks", "duration_ps", "number"),
    "devices": Rows("two_of_eight", "busy_ps", "kind"),
    "ops": Rows("B", "count", "class,op_type"),
    "layers": Rows("B", "own_ps_per_step", "source_line"),
    "memory": Rows("memory_growing", "count", "device"),
    "efficiency": Rows("products", "unknown_ratio"),
    "input": Rows("slow_map", "self_ps", "host"),
    "copies": Rows("cpu_op_between", "bytes", "direction"),
    "collectives": Rows("late_by_turns", "wait_ps", "device"),
    "balance": Rows("more_work", "compute_ps_per_step"),
    "findings": Rows("two_of_eight", "gpu_time_ratio"),
}


@pytest.fixture
def logs_of(tmp_path: Path) -> Callable[[str], str]:
    def write(name: str) -> str:
        if name == "products":
            write_products(tmp_path / name)
        else:
            SCENARIOS[name]().write(tmp_path / name)
        return str(tmp_path / name)

    return write


@pytest.fixture
def waiting(tmp_path: Path) -> str:
    """Two GPUs, two steps: both GPUs wait 20 ms for input in each, GPU:1 5 ms more for its launch."""
    trace = new_trace()
    for step in marked_steps(trace, count=2, marker_ms=50):
        step.host("IteratorGetNext:IteratorGetNext", 0, 20)
        step.host("EagerExecute", 20, 25)
        step.kernel(0, 20, 50, launch_ms=20)
        step.kernel(1, 25, 50, launch_ms=25)
    trace.write(tmp_path / "waiting")
    return str(tmp_path / "waiting")


def write_products(folder: Path) -> None:
    """Two GPUs that multiply, of whose FLOPs the capture knows a part."""
    trace = new_trace()
    for step in marked_steps(trace):
        for gpu in range(2):
            step.kernel(gpu, 2, 10, op="model/dense/MatMul:MatMul")
            step.kernel(gpu, 10, 12 + gpu, op="model/other/MatMul:MatMul")
    flops = {"model/dense/MatMul": 10**12}
    write_sidecar(trace.write(folder), {"graphs": {"flops": flops}})


def rows_of(command: Command, table: str, *arguments: str) -> list[dict[str, str]]:
    done = command("show", table, *arguments, "--format", "csv")
    assert done.code == 0, done.err
    return list(csv.DictReader(StringIO(done.out)))


# All tables


@pytest.mark.parametrize("table", TABLES)
def test_every_format_has_the_same_rows(
    table: str, command: Command, logs_of: Callable[[str], str], tmp_path: Path
) -> None:
    logs = logs_of(ROWS[table].scenario)
    rows = rows_of(command, table, logs)
    data = json.loads(command("show", table, logs, "--format", "json").out)
    command("show", table, logs, "-o", str(tmp_path / "rows.parquet"))
    frame = pd.read_parquet(BytesIO((tmp_path / "rows.parquet").read_bytes()))
    assert rows
    assert (len(data["rows"]), data["left_out_count"], data["run"]) == (len(rows), 0, "run1")
    for row, line in zip(data["rows"], rows, strict=True):
        assert {key: "" if value is None else str(value) for key, value in row.items()} == line
    assert list(frame.columns) == list(rows[0])
    assert len(frame) == len(rows)
    for width in (40, 60, 80, 120):
        lines = command("show", table, logs, "--width", str(width)).out.splitlines()
        assert lines[0].startswith("run run1")
        assert all(len(line) <= width or "traceview " in line for line in lines)


@pytest.mark.parametrize("table", TABLES)
def test_every_table_is_sorted_limited_and_chosen(
    table: str, command: Command, logs_of: Callable[[str], str]
) -> None:
    logs, sort = logs_of(ROWS[table].scenario), ROWS[table].sort
    every = rows_of(command, table, logs)
    rows = rows_of(command, table, logs, "--sort", sort)
    assert sorted(map(str, rows)) == sorted(map(str, every))
    by_device: dict[str, list[float]] = {}
    for row in rows:
        group = row["device"] if table in ("ops", "memory", "copies") else ""
        by_device.setdefault(group, []).append(float(row[sort] or "-inf"))
    if table not in ("steps", "collectives"):
        for values in by_device.values():
            assert values == sorted(values, reverse=True)
    fewer = rows_of(command, table, logs, "--sort", sort, "--top", "1")
    assert fewer == [row for row in rows if row in fewer]
    data = json.loads(command("show", table, logs, "--format", "json", "--top", "1").out)
    assert len(data["rows"]) + data["left_out_count"] == len(every)
    assert command("show", table, logs, "--sort", sort, "--top", "1").code == 0
    wrong = command("show", table, logs, "--sort", "no_such")
    assert (wrong.code, "--sort no_such: no such choice" in wrong.err) == (2, True)
    if "device" in every[0]:
        key = every[-1]["device"]
        chosen = rows_of(command, table, logs, "--device", key)
        assert sorted(map(str, chosen)) == sorted(str(row) for row in every if row["device"] == key)
        assert command("show", table, logs, "--device", "GPU:99").code == 2
    if TABLES[table].length:
        column = TABLES[table].length
        least = sorted(int(row[column]) for row in every)[len(every) // 2] // 1000
        kept = rows_of(command, table, logs, "--min", f"{least}ns")
        assert sorted(map(str, kept)) == sorted(
            str(row) for row in every if int(row[column]) >= least * 1000
        )


@pytest.mark.parametrize("table", [table for table, rows in ROWS.items() if rows.by])
def test_rows_that_agree_are_added_up(
    table: str, command: Command, logs_of: Callable[[str], str]
) -> None:
    logs, by = logs_of(ROWS[table].scenario), ROWS[table].by.split(",")
    every, groups = (
        pd.DataFrame(rows_of(command, table, logs, *options)).set_index(by, drop=False)
        for options in ((), ("--by", ",".join([*by, by[0]])))
    )
    assert groups.index.is_unique
    assert set(groups.index) == set(every.index)
    assert list(groups.columns) == [
        *by,
        "rows",
        *(c for c in groups.columns if c in TABLES[table].sums),
    ]
    for key, group in groups.iterrows():
        rows = every.loc[[key]]
        assert int(group["rows"]) == len(rows)
        for column in groups.columns[len(by) + 1 :]:
            known = [int(cell) for cell in rows[column] if cell]
            assert group[column] == (str(sum(known)) if known else "")
    first = TABLES[table].sums[0]
    assert list(groups[first].astype(int)) == sorted(groups[first].astype(int), reverse=True)
    shown = command("show", table, logs, "--by", ",".join(by), "--top", "1", "--width", "200").out
    assert f"1 row, {len(groups) - 1} left out" in shown or len(groups) == 1


def test_a_key_that_is_not_recorded_stays_and_no_group_is_no_error(
    command: Command, waiting: str
) -> None:
    shown = command("show", "gaps", waiting, "--by", "python", "--width", "70").out.splitlines()
    assert [line.split()[0] for line in shown[-2:]] == ["python", "–"]
    assert "duration" in shown[-2]
    for table, *options in (("gaps", "--min", "1s"), ("collectives",)):
        done = command("show", table, waiting, "--by", "device", *options)
        assert (done.code, "0 rows" in done.out) == (0, True)


@pytest.mark.parametrize(
    ("table", "scenario", "remark"),
    [
        ("gaps", "slow_map", "the trace holds no device event"),
        ("steps", "no_steps", "no steps: nothing marks them, and nothing repeats"),
        ("ops", "gpu_planes_empty", "the trace holds no device event in the window"),
        ("input", "plain", "no tf.data iterator was recorded"),
        ("collectives", "plain", "fewer than two devices"),
        ("balance", "gpu_planes_empty", "no device computed in the window"),
    ],
)
def test_a_table_without_rows_says_why(
    table: str, scenario: str, remark: str, command: Command, logs_of: Callable[[str], str]
) -> None:
    logs = logs_of(scenario)
    done = command("show", table, logs, "--format", "csv")
    assert (done.code, len(done.out.splitlines())) == (0, 1)
    assert done.err.startswith("traceview: ")
    assert remark in done.err
    assert "0 rows" in command("show", table, logs).out


@pytest.mark.parametrize(
    ("name", "count"),
    [("GPU:0", 2), ("0", 2), ("gpu:0", 2), ("host1/GPU:0", 1), ("HOST1/gpu:0", 1)],
)
def test_a_device_of_several_hosts(name: str, count: int, command: Command, tmp_path: Path) -> None:
    SCENARIOS["two_hosts"]().write(tmp_path)
    assert len(rows_of(command, "devices", str(tmp_path), "--device", name)) == count
    done = command("show", "devices", str(tmp_path), "--device", "GPU:9")
    assert done.err.splitlines()[0] == "traceview: error: no device is called 'GPU:9'"
    assert "there are host0/GPU:0" in done.err


def test_parquet_needs_pyarrow_and_a_file(
    command: Command, waiting: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Target, "is_terminal", True)
    assert command("show", "gaps", waiting, "--format", "parquet").code == 2
    monkeypatch.setattr(tables, "find_spec", lambda _: None)
    file = tmp_path / "gaps.parquet"
    done = command("show", "gaps", waiting, "-o", str(file))
    assert (done.code, done.out, file.exists()) == (2, "", False)
    assert done.err.splitlines()[1] == "hint: pip install 'traceview[parquet]'"


# Single tables


def test_gaps_have_their_state_and_evidence(command: Command, waiting: str) -> None:
    rows = rows_of(command, "gaps", waiting)
    assert [(r["device"], r["step"], r["state"], r["duration_ps"]) for r in rows] == [
        ("GPU:1", "0", "input", str(25 * MS)),
        ("GPU:1", "1", "input", str(25 * MS)),
        ("GPU:0", "0", "input", str(20 * MS)),
        ("GPU:0", "1", "input", str(20 * MS)),
    ]
    assert (rows[0]["input_ps"], rows[0]["launch_ps"]) == (str(20 * MS), str(5 * MS))
    assert rows[2]["host_event"] == "IteratorGetNext:IteratorGetNext"
    idle = known(traceview.analyze(waiting).results.idle)
    whole = sum(row.idle_ps for row in idle.devices)
    assert sum(int(row["duration_ps"]) for row in rows) == whole

    def count(*arguments: str) -> int:
        return len(rows_of(command, "gaps", waiting, *arguments))

    # Two of them hold launches, though none is mostly that.
    assert [count("--state", "launch"), count("--state", "launch", "--state", "input")] == [2, 4]
    assert [count("--min", "25ms"), count("--min", "25.000001ms")] == [2, 0]
    assert [count("--steps", "1:2"), count("--device", "1", "--top", "1")] == [2, 1]
    narrow = command("show", "gaps", waiting, "--width", "80").out.splitlines()[3]
    asked = command("show", "gaps", waiting, "--state", "input", "--width", "80").out
    assert not narrow.endswith("input")
    assert asked.splitlines()[3].endswith("input")


def test_of_many_steps_the_first_and_last_are_shown(command: Command, tmp_path: Path) -> None:
    """1,000 steps of 2 ms, of which number 500 is 100 times as long."""
    trace = new_trace(length_ms=2300)
    start_ms = 0.0
    for number in range(1000):
        step = Step(trace, start_ms)
        trace.marker(number, step.at(0), step.at(1.9))
        step.kernel(0, 0.2, 1.2)
        start_ms += 200 if number == 500 else 2
    trace.write(tmp_path)
    lines = command("show", "steps", str(tmp_path), "--width", "80").out.splitlines()
    assert "40 rows, 960 left out" in lines[0]
    rows = [line for line in lines if line.strip()[:1].isdigit()]
    shown = [*map(str, range(20)), *map(str, range(980, 1000))]
    assert [line.split()[0] for line in rows] == shown
    assert "Steps 20 to 979 are not shown." in " ".join(lines)
    longest = rows_of(command, "steps", str(tmp_path), "--sort", "duration_ps", "--top", "1")
    assert [row["number"] for row in longest] == ["500"]
    assert rows_of(command, "steps", str(tmp_path), "--top", "1") == longest
    (head, *_) = command("show", "steps", str(tmp_path), "--top", "1").out.splitlines()
    assert head.endswith(" · longest first")


def test_classes_directions_and_states_are_chosen(
    command: Command, logs_of: Callable[[str], str]
) -> None:
    ops = rows_of(command, "ops", logs_of("B"), "--state", "d2d", "--state", "collective")
    assert {row["class"] for row in ops} == {"d2d", "collective"}
    copies = logs_of("cpu_op_between")
    ways = [row["direction"] for row in rows_of(command, "copies", copies)]
    assert ways == ["d2h", "h2d"]
    (row,) = rows_of(command, "copies", copies, "--steps", "1:2", "--state", "h2d")
    assert (row["count"], row["exposed_ps"]) == ("1", "1000000000")
    findings = logs_of("two_of_eight")
    of_state = rows_of(command, "findings", findings, "--state", "no_work")
    assert [row["code"] for row in of_state] == ["unused-gpu"]
    of_device = rows_of(command, "findings", findings, "--device", "0")
    assert "unused-gpu" not in [row["code"] for row in of_device]
    assert "unused-gpu (" in command("show", "findings", findings).out


def test_of_few_collectives_those_with_the_longest_waiting_are_shown(
    command: Command, tmp_path: Path
) -> None:
    trace = new_trace()
    for number, step in enumerate(marked_steps(trace, count=3)):
        for gpu in range(2):
            step.kernel(gpu, 5, 20)
        late_ms = (0, 6, 3)[number]
        all_reduce(step, [(20, 30), (20 + late_ms, 30)], instance=number, asked_ms=19)
    trace.write(tmp_path)
    every = rows_of(command, "collectives", str(tmp_path))
    assert [row["collective"] for row in every] == ["0", "0", "1", "1", "2", "2"]
    chosen = rows_of(command, "collectives", str(tmp_path), "--top", "2")
    assert [row["collective"] for row in chosen] == ["1", "1", "2", "2"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("50us", 50 * 10**6),
        ("1.5ms", 1_500_000_000),
        ("0.001ns", 1),
        ("3μs", 3 * 10**6),
        *((wrong, None) for wrong in ("", "5", "ms", "1e3us", "-1us", "1,5ms", "٣us", "1..5s")),
    ],
)
def test_lengths_of_time(text: str, expected: int | None) -> None:
    if expected is not None:
        assert picoseconds("--min", text) == expected
        return
    with pytest.raises(UsageError, match="not a length of time"):
        picoseconds("--min", text)
