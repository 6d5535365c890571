"""A notebook gets the public names, the DataFrames with their columns, and every recorded stat."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import traceview
from scripts.scenarios import SCENARIOS
from scripts.scenarios.model import marked_steps, ms, new_trace
from tests.capture.conftest import ROOT, run_python
from traceview import Trace, UsageError

COLUMNS = {
    "device_events": {
        **dict.fromkeys(("device", "stream", "class", "name", "op"), "category"),
        **dict.fromkeys(("start_ps", "duration_ps"), "int64"),
        **dict.fromkeys(("bytes", "correlation_id", "launch", "step"), "Int64"),
        "p2p": "bool",
    },
    "host_events": {
        **dict.fromkeys(("host", "thread", "name"), "category"),
        **dict.fromkeys(("start_ps", "duration_ps"), "int64"),
        **dict.fromkeys(("correlation_id", "step"), "Int64"),
    },
}


def scenario(name: str, folder: Path) -> Trace:
    SCENARIOS[name]().write(folder)
    return traceview.load(folder)


@pytest.fixture(scope="module")
def cpu_run(fixtures: Path) -> Trace:
    return traceview.load(fixtures / "custom-loop-2")


@pytest.mark.parametrize("name", ["custom-loop-2", "hidden_transfers", "no_gpu_plane", "no_steps"])
def test_columns(name: str, cpu_run: Trace, tmp_path: Path) -> None:
    trace = cpu_run if name == "custom-loop-2" else scenario(name, tmp_path)
    for frame_name, columns in COLUMNS.items():
        frame: pd.DataFrame = getattr(trace, frame_name)
        assert {key: str(kind) for key, kind in frame.dtypes.items()} == columns
        assert list(frame.columns) == list(columns)
        assert isinstance(frame.index, pd.RangeIndex)


# Rows


def test_an_event_between_or_after_steps_belongs_to_none(tmp_path: Path) -> None:
    trace = new_trace()
    trace.kernel(0, ms(5), ms(6))
    for step in marked_steps(trace, count=2, first_ms=10):
        step.kernel(0, 2, 42)
    trace.kernel(0, ms(110), ms(111))
    trace.write(tmp_path)
    loaded = traceview.load(tmp_path)
    assert [None if pd.isna(n) else n for n in loaded.device_events["step"]] == [None, 0, 1, None]


# Links


@pytest.mark.parametrize(
    "name", ["hidden_transfers", "rocm", "graph_nodes", "two_hosts", "odd_line_ids"]
)
def test_launch_points_to_the_call_with_the_same_number(name: str, tmp_path: Path) -> None:
    """On the same host, with the same correlation id, and before the device event."""
    trace = scenario(name, tmp_path)
    events = trace.device_events
    launches = trace.host_events.iloc[events["launch"].to_numpy(dtype="int64")]
    assert list(launches["correlation_id"]) == list(events["correlation_id"])
    several = len(trace.hosts) > 1
    hosts = [device.split("/")[0] if several else "host0" for device in events["device"]]
    assert list(launches["host"]) == hosts
    assert (launches["start_ps"].to_numpy() <= events["start_ps"].to_numpy()).all()
    assert list(launches["step"]) == list(events["step"])


def test_the_first_of_two_calls_with_one_number_is_the_launch(tmp_path: Path) -> None:
    trace = new_trace()
    trace.launch("late", ms(1.5), 7)
    trace.launch("early", ms(1), 7, thread=trace.thread("python3", 2))
    trace.kernel(0, ms(2), ms(3), correlation_id=7)
    trace.kernel(0, ms(4), ms(5), correlation_id=8)
    trace.write(tmp_path)
    loaded = traceview.load(tmp_path)
    linked, unlinked = loaded.device_events["launch"]
    assert loaded.host_events["name"].iloc[linked] == "early"
    assert unlinked is pd.NA


# Analyze


@pytest.mark.parametrize("given", [str, Path, traceview.load])
def test_analyze_takes_a_path_or_a_trace(given: Callable[[Path], Any], tmp_path: Path) -> None:
    SCENARIOS["A"]().write(tmp_path)
    assert traceview.analyze(given(tmp_path)) == traceview.analyze(tmp_path)


@pytest.mark.parametrize(
    ("name", "asked", "said"),
    [
        *(("A", {"steps": each}, "it has steps 0 to 3") for each in (slice(4, 9), slice(3, 1))),
        ("no_steps", {"steps": slice(0, 1)}, "it has no steps"),
        ("no_steps", {"window": "steps"}, "--window steps: the trace has no steps"),
        *(
            ("A", {"steps": each}, "steps must be a range")
            for each in (5, "1:2", (1, 3), slice(1, 3, 2), slice(-2, None), range(4, 0, -1))
        ),
        ("A", {"window": "foo"}, "window must be one of auto, steps, devices, trace"),
        ("A", {"top": -1}, "top must be"),
    ],
)
def test_what_is_not_there_is_refused(
    name: str, asked: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=said):
        traceview.analyze(scenario(name, tmp_path), **asked)


# Names


def test_public_names_are_there_and_lazy() -> None:
    for name in traceview.__all__:
        assert getattr(traceview, name) is not None
    assert dir(traceview) == sorted(traceview.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        attrgetter("nothing")(traceview)
    code = "import sys, traceview; print(sorted({'numpy', 'pandas', 'rich'} & set(sys.modules)))"
    assert run_python(ROOT, "-c", code, code=0).out == "[]\n"


def test_a_notebook_shows_the_page_for_a_ticket(fixtures: Path) -> None:
    from IPython.core.formatters import DisplayFormatter

    report = traceview.analyze(fixtures / "custom-loop-2")
    assert repr(report).endswith(
        "Dispatch takes 2.05 of 2.96 ms (69%), as in any step of so many ops.>"
    )
    formatter: Any = DisplayFormatter()
    shown, _ = formatter.format(report)
    assert shown == {"text/markdown": report.to_markdown(), "text/plain": repr(report)}
