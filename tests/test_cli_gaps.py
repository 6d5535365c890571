"""`traceview show gaps` lists every gap with its cause, in every format."""

from __future__ import annotations

import csv
import json
import re
from io import BytesIO, StringIO
from pathlib import Path

import pandas as pd
import pytest

import traceview
from scripts.cuda_trace import MS, CudaTrace
from scripts.scenarios import SCENARIOS
from scripts.scenarios.model import marked_steps, new_trace
from tests.command import Command
from traceview.base.errors import UsageError
from traceview.cli.options import picoseconds, word_of
from traceview.cli.output import Target
from traceview.document.vocabulary import STATES
from traceview.export import formats
from traceview.ledger.states import IDLE_STATES

pytestmark = pytest.mark.usefixtures("no_terminal")


@pytest.fixture
def logs(tmp_path: Path) -> str:
    """Two GPUs, two steps: both GPUs wait 20 ms for input in each, GPU:1 5 ms more for its launch."""
    write(tmp_path / "logs")
    return str(tmp_path / "logs")


def write(folder: Path, name: str = "IteratorGetNext:IteratorGetNext") -> None:
    trace = new_trace()
    for step in marked_steps(trace, count=2, marker_ms=50):
        step.host(name, 0, 20)
        step.host("EagerExecute", 20, 25)
        step.kernel(0, 20, 50, launch_ms=20, op=f"{name}/after")
        step.kernel(1, 25, 50, launch_ms=25)
    trace.write(folder)


COLUMNS = (
    *("device", "start_ps", "duration_ps", "step", "state", "before", "after", "thread"),
    *("host_event", "python", "python_inner", "python_ratio", "host_outer"),
    *("previous_event", "next_event"),
    *(f"{state.key}_ps" for state in IDLE_STATES),
)


def table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(StringIO(text)))


def test_every_format_has_the_same_rows(command: Command, logs: str, tmp_path: Path) -> None:
    rows = table(command("show", "gaps", logs, "--format", "csv").out)
    assert tuple(rows[0]) == COLUMNS
    assert [(r["device"], r["step"], r["state"], r["duration_ps"]) for r in rows] == [
        ("GPU:1", "0", "input", str(25 * MS)),
        ("GPU:1", "1", "input", str(25 * MS)),
        ("GPU:0", "0", "input", str(20 * MS)),
        ("GPU:0", "1", "input", str(20 * MS)),
    ]
    assert (rows[0]["input_ps"], rows[0]["launch_ps"]) == (str(20 * MS), str(5 * MS))
    assert rows[2]["host_outer"] == "train"
    assert rows[2]["host_event"] == "IteratorGetNext:IteratorGetNext"
    data = json.loads(command("show", "gaps", logs, "--format", "json").out)
    assert (data["left_out_count"], data["run"]) == (0, "run1")
    assert [
        ["" if value is None else str(value) for value in row.values()] for row in data["rows"]
    ] == [list(row.values()) for row in rows]
    done = command("show", "gaps", logs, "-o", str(tmp_path / "gaps.csv"))
    assert (done.code, done.out) == (0, "")
    assert table((tmp_path / "gaps.csv").read_text("utf-8")) == rows

    results = traceview.analyze(logs).results
    assert results.idle is not None
    assert sum(int(row["duration_ps"]) for row in rows) == sum(
        row.idle_ps for row in results.idle.devices
    )


def test_terminal(command: Command, logs: str) -> None:
    lines = command("show", "gaps", logs, "--width", "230").out.splitlines()
    assert lines[0] == "run run1 · window 100 ms · 4 rows · longest first"
    head, first = lines[3:5]
    assert head.split("  ")[0] == "device"
    assert re.split(r"\s{2,}", head)[-2:] == ["input", "kernel launches"]
    assert re.split(r"\s{2,}", first)[:5] == ["GPU:1", "0", "25.0 ms", "0", "input"]
    assert re.split(r"\s{2,}", first)[-2:] == ["20.0 ms", "5.00 ms"]
    assert "Python thread: train > IteratorGetNext:IteratorGetNext" in first


@pytest.mark.parametrize("width", [40, 60, 80])
def test_a_narrow_terminal_names_what_it_does_not_show(
    command: Command, logs: str, width: int
) -> None:
    out = command("show", "gaps", logs, "--width", str(width)).out
    assert max(map(len, out.splitlines())) <= width
    assert f"Not shown at {width} columns: " in out


def test_what_is_shown_can_be_chosen(command: Command, logs: str) -> None:
    def chosen(*arguments: str) -> list[tuple[str, str]]:
        rows = table(command("show", "gaps", logs, "--format", "csv", *arguments).out)
        return [(row["device"], row["step"]) for row in rows]

    assert chosen("--device", "1") == [("GPU:1", "0"), ("GPU:1", "1")]
    assert chosen("--device", "GPU:0", "--top", "1") == [("GPU:0", "0")]
    assert chosen("--state", "launch") == []
    assert chosen("--state", "launch", "--state", "input", "--top", "1") == [("GPU:1", "0")]
    assert chosen("--min", "25ms") == [("GPU:1", "0"), ("GPU:1", "1")]
    assert chosen("--min", "25.000001ms") == []
    assert chosen("--steps", "1:2") == [("GPU:1", "1"), ("GPU:0", "1")]
    data = json.loads(command("show", "gaps", logs, "--format", "json", "--top", "1").out)
    assert (len(data["rows"]), data["left_out_count"]) == (1, 3)
    assert len(table(command("show", "gaps", logs, "--format", "csv", "--window", "trace").out)) > 4


def test_columns_can_be_chosen(command: Command, logs: str, tmp_path: Path) -> None:
    chosen = ("--columns", "duration_ps,device", "--columns", "host_event", "--top", "1")
    done = command("show", "gaps", logs, "--format", "csv", *chosen)
    length = str(25 * MS)
    assert done.out.splitlines() == [
        "duration_ps,device,host_event",
        f"{length},GPU:1,IteratorGetNext:IteratorGetNext",
    ]
    (row,) = json.loads(command("show", "gaps", logs, "--format", "json", *chosen).out)["rows"]
    assert list(row) == ["duration_ps", "device", "host_event"]
    command("show", "gaps", logs, "-o", str(tmp_path / "gaps.parquet"), *chosen)
    assert list(pd.read_parquet(tmp_path / "gaps.parquet")) == list(row)


@pytest.mark.parametrize(
    ("columns", "error"),
    [
        ("durations_ps", "--columns durations_ps: no such choice\nhint: did you mean duration_ps?"),
        ("device,step,device", "--columns: device is given twice"),
        (",", "--columns: no column is given"),
    ],
)
def test_columns_that_are_not_there(
    command: Command, logs: str, columns: str, error: str, tmp_path: Path
) -> None:
    place = tmp_path / "gaps.csv"
    done = command("show", "gaps", logs, "-o", str(place), "--columns", columns)
    assert (done.code, done.out, place.exists()) == (2, "", False)
    assert done.err.startswith(f"traceview: error: {error}")


def test_a_terminal_shows_the_columns_that_are_asked_for(command: Command, logs: str) -> None:
    out = command("show", "gaps", logs, "--columns", "device,duration").out
    assert out.splitlines()[3:5] == ["device  duration", "GPU:1    25.0 ms"]


def test_the_column_of_the_state_stays_on_a_narrow_terminal(command: Command, logs: str) -> None:
    for width in ("80", "100"):
        head = command("show", "gaps", logs, "--width", width).out.splitlines()[3]
        assert not head.endswith("input")
        asked = command("show", "gaps", logs, "--state", "input", "--width", width).out
        assert asked.splitlines()[3].endswith("input")


def test_a_terminal_is_shown_the_longest_only(command: Command, tmp_path: Path) -> None:
    trace = CudaTrace()
    for number in range(30):
        trace.kernel(0, 2 * number * MS, (2 * number + 1) * MS)
    trace.write(tmp_path)
    assert "20 rows, 9 left out" in command("show", "gaps", str(tmp_path)).out
    assert len(table(command("show", "gaps", str(tmp_path), "--format", "csv").out)) == 29


@pytest.mark.parametrize(
    "arguments",
    [
        ("--min", "50"),
        ("--min", "us"),
        ("--min", "-1us"),
        ("--min", "1h"),
        ("--state", "nothing"),
        ("--device", "7"),
        ("--device", "nonsense"),
        ("--device", ""),
        ("--device", " , "),
        ("--top", "0"),
        ("--steps", "9:12"),
        ("--format", "xml"),
    ],
)
def test_wrong_usage(command: Command, logs: str, arguments: tuple[str, str]) -> None:
    done = command("show", "gaps", logs, *arguments)
    assert (done.code, done.out) == (2, "")
    assert arguments[1] in done.err or arguments[0] in done.err


def test_without_devices_it_says_so(command: Command, logs: str, tmp_path: Path) -> None:
    SCENARIOS["slow_map"]().write(tmp_path / "cpu")
    done = command("show", "gaps", str(tmp_path / "cpu"))
    assert done.code == 0
    assert "0 rows" in done.out
    assert done.err == "traceview: the trace holds no device event\n"
    assert command("show", "gaps", logs, "--state", "compile").err == ""


def test_no_trace_there(command: Command, tmp_path: Path) -> None:
    done = command("show", "gaps", str(tmp_path / "nowhere"))
    assert done.code != 0
    assert done.out == ""
    assert "nowhere" in done.err


def test_every_state_can_be_chosen() -> None:
    states = {state.key: STATES[state.key] for state in IDLE_STATES}
    read = word_of("--state", states, {"not known": "unknown"})
    assert [read(state) for state in states] == list(states)
    with pytest.raises(UsageError, match="--state inputs: no such choice") as caught:
        read("inputs")
    assert caught.value.hint == f"did you mean input? one of {', '.join(states)}"
    assert read("Not known") == "unknown"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("50us", 50 * 10**6),
        ("1.5ms", 1_500_000_000),
        (" 2 s ", 2 * 10**12),
        ("7ns", 7000),
        ("0.001ns", 1),
        ("3µs", 3 * 10**6),
        ("3μs", 3 * 10**6),
        ("0us", 0),
    ],
)
def test_lengths_of_time(text: str, expected: int) -> None:
    assert picoseconds("--min", text) == expected


@pytest.mark.parametrize(
    "text", ["", "5", "ms", "1e3us", "-1us", "1,5ms", "٣us", "1 minute", "1..5s"]
)
def test_what_is_no_length_of_time(text: str) -> None:
    with pytest.raises(UsageError, match="not a length of time"):
        picoseconds("--min", text)


def test_parquet_needs_pyarrow(
    command: Command, logs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(formats, "find_spec", lambda _: None)
    file = tmp_path / "gaps.parquet"
    done = command("show", "gaps", logs, "-o", str(file))
    assert done.code == 2
    assert "Parquet needs pyarrow" in done.err
    assert not file.exists()


def test_parquet_holds_the_rows(
    command: Command, logs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "gaps.parquet"
    assert command("show", "gaps", logs, "-o", str(file), "--device", "1").code == 0
    frame = pd.read_parquet(BytesIO(file.read_bytes()))
    assert tuple(frame.columns) == COLUMNS
    assert frame["duration_ps"].tolist() == [25 * MS] * 2
    assert frame["input_ps"].tolist() == [20 * MS] * 2
    monkeypatch.setattr(Target, "is_terminal", True)
    assert command("show", "gaps", logs, "--format", "parquet").code == 2


def test_names_of_a_trace_can_harm_nobody(command: Command, tmp_path: Path) -> None:
    write(tmp_path, "=cmd|' /C calc'!A0\x1b[31m\n,\"")
    rows = table(command("show", "gaps", str(tmp_path), "--format", "csv", "--device", "0").out)
    assert rows[0]["after"].startswith("'=cmd")
    shown = command("show", "gaps", str(tmp_path), "--device", "0", "--width", "300").out
    assert "\x1b" not in shown
    assert "calc" in shown


def test_two_hosts(command: Command, tmp_path: Path) -> None:
    SCENARIOS["two_hosts"]().write(tmp_path)
    rows = table(command("show", "gaps", str(tmp_path), "--format", "csv").out)
    devices = {row["device"] for row in rows}
    assert len(devices) > 1
    assert all("/GPU:" in device for device in devices)
    one = min(devices)
    only = table(command("show", "gaps", str(tmp_path), "--format", "csv", "--device", one).out)
    assert {row["device"] for row in only} == {one}


def test_replicas(command: Command, fixtures: Path) -> None:
    rows = table(command("show", "gaps", str(fixtures / "custom-loop-2"), "--format", "csv").out)
    assert {row["device"] for row in rows} == {"replica:0", "replica:1"}
    for never in ("launch_ps", "h2d_ps", "dependency_ps", "latency_ps"):
        assert {row[never] for row in rows} == {"0"}
