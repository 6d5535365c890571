"""`traceview show steps` lists every step with states that add up, in every format."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from io import BytesIO, StringIO
from pathlib import Path

import pandas as pd
import pytest

import traceview
from scripts.scenarios import SCENARIOS
from scripts.scenarios.model import Step, marked_steps, new_trace
from scripts.scenarios.plain import plain_step
from tests.command import Command
from traceview.analysis.gpu_time.step_tables import MOST_STEPS, step_sections, step_table
from traceview.analysis.measures.step_report import StepDevice, StepRow, Steps
from traceview.document.terminal import render_section
from traceview.ledger.states import KEYS

pytestmark = pytest.mark.usefixtures("no_terminal")

STATES = [f"{key}_ps" for key in KEYS]


@pytest.fixture
def logs(tmp_path: Path) -> str:
    """Four steps of 60 ms on one GPU, each with a wait for input and a callback after it."""
    SCENARIOS["input_and_callbacks"]().write(tmp_path / "logs")
    return str(tmp_path / "logs")


@pytest.fixture
def many(tmp_path: Path) -> str:
    """1,000 steps of 2 ms, of which number 500 is 100 times as long."""
    trace = new_trace(length_ms=2300)
    start_ms = 0.0
    for number in range(1000):
        step = Step(trace, start_ms)
        trace.marker(number, step.at(0), step.at(1.9))
        step.kernel(0, 0.2, 1.2)
        start_ms += 200 if number == 500 else 2
    trace.write(tmp_path / "many")
    return str(tmp_path / "many")


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(StringIO(text)))


def total(row: dict[str, str], keys: Iterable[str]) -> int:
    return sum(int(row[key]) for key in keys)


@pytest.mark.parametrize("window", ["auto", "devices", "trace"])
@pytest.mark.parametrize(
    "name", ["A", "B", "D", "G", "input_and_callbacks", "host_runs_ahead", "first_step_traces"]
)
def test_states_sum_to_the_step(name: str, window: str, command: Command, tmp_path: Path) -> None:
    SCENARIOS[name]().write(tmp_path)
    rows = rows_of(
        command("show", "steps", str(tmp_path), "--window", window, "--format", "csv").out
    )
    assert len(rows) >= 4
    # The window from the first to the last device event may begin and end within a step.
    ends = {rows[0]["number"], rows[-1]["number"]} if window == "devices" else set()
    for row in rows:
        length_ps = int(row["duration_ps"])
        assert total(row, STATES) == length_ps or (
            row["number"] in ends and total(row, STATES) < length_ps
        )


def test_every_format_has_the_same_rows(command: Command, logs: str, tmp_path: Path) -> None:
    rows = rows_of(command("show", "steps", logs, "--format", "csv").out)
    assert [(row["number"], row["start_ps"], row["duration_ps"]) for row in rows] == [
        (str(step.number), str(step.start_ps), str(step.duration_ps)) for step in steps_of(logs)
    ]
    command("show", "steps", logs, "-o", str(tmp_path / "steps.json"))
    command("show", "steps", logs, "-o", str(tmp_path / "steps.parquet"))
    data = json.loads((tmp_path / "steps.json").read_text("utf-8"))
    frame = pd.read_parquet(BytesIO((tmp_path / "steps.parquet").read_bytes()))
    assert list(data["rows"][0]) == list(rows[0]) == list(frame.columns)
    for key in ("number", "duration_ps", *STATES):
        assert [row[key] for row in data["rows"]] == [int(row[key]) for row in rows]
        assert frame[key].tolist() == [int(row[key]) for row in rows]
    assert frame["used"].tolist() == [row["used"] for row in data["rows"]] == [True] * 4
    assert (data["left_out_count"], len(data["rows"])) == (0, 4)


def steps_of(logs: str) -> Iterable[StepRow]:
    steps = traceview.analyze(logs).results.steps
    assert steps is not None
    return steps.steps


def test_what_a_step_is_made_of_on_a_terminal(command: Command, tmp_path: Path) -> None:
    SCENARIOS["G"]().write(tmp_path)
    lines = command("show", "steps", str(tmp_path), "--width", "80").out.splitlines()
    assert lines[0] == "run run1 · window 200 ms · 8 rows"
    of_gpu_1 = lines[lines.index("GPU:1") + 1 :]
    first = next(place for place, line in enumerate(of_gpu_1) if line[0].isdigit())
    assert of_gpu_1[first - 1].split()[:3] == ["step", "input", "compute"]
    assert of_gpu_1[first].split()[:3] == ["0", "60.0%", "20.0%"]
    assert f"0     50.0 ms  {'=' * 40}" in lines


def test_a_terminal_of_any_width_gets_whole_lines(command: Command, logs: str) -> None:
    narrow = command("show", "steps", logs, "--width", "40").out
    assert max(map(len, narrow.splitlines())) <= 40
    assert "Not shown at 40 columns: " in narrow
    assert "Not shown" not in command("show", "steps", logs, "--width", "200").out


def test_only_one_device(command: Command, tmp_path: Path) -> None:
    SCENARIOS["B"]().write(tmp_path)
    rows = rows_of(command("show", "steps", str(tmp_path), "--device", "1", "--format", "csv").out)
    assert [row["device"] for row in rows] == ["GPU:1"] * 4
    done = command("show", "steps", str(tmp_path), "--device", "7")
    assert (done.code, done.out) == (2, "")


def test_only_some_steps(command: Command, logs: str) -> None:
    rows = rows_of(command("show", "steps", logs, "--steps", "1:3", "--format", "csv").out)
    assert [row["number"] for row in rows] == ["1", "2"]
    assert [total(row, STATES) for row in rows] == [int(row["duration_ps"]) for row in rows]


def test_without_steps_it_says_so(command: Command, tmp_path: Path) -> None:
    SCENARIOS["no_steps"]().write(tmp_path)
    done = command("show", "steps", str(tmp_path), "--format", "csv")
    assert (done.code, len(done.out.splitlines())) == (0, 1)
    assert done.err == "traceview: no steps: nothing marks them, and nothing repeats\n"
    assert command("show", "steps", str(tmp_path)).out.startswith(
        "run run1 · window 130 ms · 0 rows\n"
    )


def test_without_devices_it_says_so(command: Command, tmp_path: Path) -> None:
    SCENARIOS["slow_map"]().write(tmp_path)
    done = command("show", "steps", str(tmp_path))
    assert (done.code, "0 rows" in done.out) == (0, True)
    assert done.err == (
        "traceview: 4 steps, but no device was recorded; traceview analyze shows how long they took\n"
    )


def test_why_a_step_is_left_out(command: Command, tmp_path: Path) -> None:
    SCENARIOS["first_step_traces"]().write(tmp_path)
    out = command("show", "steps", str(tmp_path), "--width", "100").out
    (line,) = (line for line in out.splitlines() if "left out: " in line)
    assert line.split()[0] == "0"


def test_of_many_steps_the_first_and_last_are_shown(command: Command, many: str) -> None:
    out = command("show", "steps", many, "--width", "80").out
    lines = out.splitlines()
    assert "40 rows, 960 left out" in lines[0]
    assert len(lines) < 2 * MOST_STEPS + 20
    rows = [line for line in lines[lines.index("GPU:0") :] if line[:1].isdigit()]
    assert [line.split()[0] for line in rows] == [
        *map(str, range(20)),
        *map(str, range(980, 1000)),
    ]
    assert (
        "Steps 20 to 979 are not shown: --steps A:B shows some, -o steps.csv has all."
        in " ".join(" ".join(lines).replace("`", "").split())
    )
    assert len(rows_of(command("show", "steps", many, "--format", "csv").out)) == 1000


def test_one_long_step_leaves_the_others_something_to_see(command: Command, many: str) -> None:
    out = command("show", "steps", many, "--steps", "490:510", "--width", "80").out
    bars = {line.split()[0]: line.split()[3] for line in out.splitlines() if line.endswith("=")}
    assert len(bars) == 20
    assert bars["500"] == "=" * 40
    assert {bar for step, bar in bars.items() if step != "500"} == {"=" * 10}


def test_ascii_where_the_terminal_has_no_more() -> None:
    rows = step_table(steps_like([10**9, *[10**6] * 49], "the function wäs traced"), ["GPU:0"])
    for section in step_sections(rows):
        assert render_section(section, width=80, color=False, unicode=False).isascii()


def test_each_host_has_a_table_of_its_own(command: Command, tmp_path: Path) -> None:
    for host in ("first", "second"):
        trace = new_trace(host)
        for step in marked_steps(trace):
            plain_step(step)
        trace.write(tmp_path)
    out = command("show", "steps", str(tmp_path), "--width", "80").out
    assert [
        line for line in out.splitlines() if line.startswith(("Step times", "first", "second"))
    ] == [
        "Step times of first",
        "first/GPU:0",
        "Step times of second",
        "second/GPU:0",
    ]


def steps_like(durations_ps: list[int], excluded: str | None = None) -> Steps:
    """Steps in which GPU:0 waits for input; `excluded`: why the first is left out of statistics."""
    rows = tuple(
        StepRow(
            host="host0",
            number=number,
            recorded_number=None,
            kind="train",
            start_ps=number * 10**6,
            duration_ps=duration_ps,
            used=number > 0 or excluded is None,
            excluded=excluded if number == 0 else None,
            devices=(StepDevice("GPU:0", {"input": duration_ps}),),
        )
        for number, duration_ps in enumerate(durations_ps)
    )
    return Steps(
        method="marker",
        reliability="high",
        basis="marker",
        loop_iterations=None,
        steps_per_call=None,
        count=len(rows),
        used_count=len(rows),
        median_ps=None,
        iqr_ps=None,
        cv_ratio=None,
        steps=rows,
    )
