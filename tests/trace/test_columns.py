"""Columns in as few bytes as their values need, ends made on demand, and the events of a thread around a span."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict

import traceview
from scripts.scenarios import SCENARIOS
from scripts.scenarios.model import Step, marked_steps, new_trace
from traceview.trace.host.host_events import HostEvents
from traceview.trace.model import NONE, Ends, HostStat, LineInfo, Trace, threads
from traceview.trace.reading.join import _OFTEN_ALIKE
from traceview.trace.reading.load import load
from traceview.trace.reading.merge import _joined as joined_columns
from traceview.xplane.columns import small

LEAST, MOST = -(1 << 31), (1 << 31) - 1


@pytest.mark.parametrize(
    ("values", "type_"),
    [
        ([], np.int32),
        ([0, -1], np.int32),
        ([LEAST, MOST], np.int32),
        ([LEAST - 1], np.int64),
        ([MOST + 1, 0], np.int64),
    ],
)
def test_small_integers(values: list[int], type_: type[np.integer]) -> None:
    for before in (np.int64, np.int32) if type_ is np.int32 else (np.int64,):
        column = small(np.array(values, dtype=before))
        assert column.dtype == type_
        assert column.tolist() == values


def test_hosts_whose_numbers_need_different_bits() -> None:
    for order in ([0, 1, 2], [1, 0, 2]):
        pieces = {
            host: {"position": small(np.array([value]))}
            for host, value in enumerate((1, MOST + 1, 2))
        }
        whole = joined_columns(order, pieces, "position", lambda _, column: column)
        assert whole.tolist() == [(1, MOST + 1, 2)[host] for host in order]


def test_ends() -> None:
    ends = Ends(np.array([5, 7, 9]), np.array([1, 0, 1 << 40]))
    assert ends[1] == 7
    assert ends[:].tolist() == [6, 7, 9 + (1 << 40)]
    assert ends[1:].tolist() == ends[np.array([1, 2])].tolist() == [7, 9 + (1 << 40)]
    assert ends[np.array([True, False, False])].tolist() == [6]


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    """A host with a thread of 500 events that overlap at random, and one whose events are on two lines in turns."""
    logdir = tmp_path_factory.mktemp("busy")
    trace = new_trace()
    for step in marked_steps(trace, count=2):
        step.kernel(0, 1, 20)
    chance = random.Random(7)
    for id_, name, line_count in ((70, "one line", 1), (71, "two lines", 2)):
        lines = [trace.host_plane.line(id_, name, key=f"{name} {n}") for n in range(line_count)]
        for number, start in enumerate(range(0, 5000, 10)):
            lines[number % line_count].add("work", start, start + chance.randrange(1, 400))
    trace.write(logdir)
    return load(logdir)


@pytest.mark.parametrize("name", ["one line", "two lines"])
def test_events_open_in_a_span(busy: Trace, name: str) -> None:
    lines = [index for index, line in enumerate(busy.lines) if line.name == name]
    events, columns = HostEvents(busy, 0), busy.host_columns
    (thread,) = {int(busy.thread_of_line[line]) for line in lines}
    rows = np.concatenate([np.arange(columns.count)[columns.rows_of(line)] for line in lines])
    assert rows.size == 500
    start, end = columns.start_ps[rows], columns.end_ps[rows]
    assert (np.sort(start) == start).all() == (name == "one line")
    first, last = int(start.min()), int(end.max())
    chance = random.Random(11)
    for _ in range(200):
        begin = chance.randrange(first - 100, last + 100)
        until = begin + chance.choice((1, 1000, (last - first) // 3))
        is_open = (start < until) & (end > begin)
        expected = rows[is_open][np.argsort(start[is_open], kind="stable")]
        assert events.open_in(thread, begin, until).tolist() == expected.tolist()
    assert events.rows_of_thread(thread).tolist() == rows.tolist()


def test_a_column_of_one_value_holds_it_once(tmp_path: Path) -> None:
    SCENARIOS["late_by_turns"]().write(tmp_path)
    trace = load(tmp_path)
    device, host = trace.device_columns, trace.host_columns
    repeated = {
        key for key, column in asdict(device).items() if column.size and column.strides == (0,)
    }
    distinct = {key for key, column in asdict(device).items() if len(set(column.tolist())) == 1}
    assert repeated == distinct & _OFTEN_ALIKE
    assert {"module", "group", "p2p"} <= repeated
    assert "start_ps" not in repeated
    assert host.host.tolist() == [0] * host.count
    assert host.host.strides == (0,)


def test_ids_of_launches_are_stored_in_32_bits_and_read_in_64(tmp_path: Path) -> None:
    SCENARIOS["late_by_turns"]().write(tmp_path)
    stat = load(tmp_path).host_columns.stat("correlation_id")
    assert stat.row.size
    assert stat.stored_row.dtype == stat.stored_value.dtype == np.int32
    assert stat.row.dtype == stat.value.dtype == np.int64
    assert stat.at(stat.row, -1).tolist() == stat.stored_value.tolist()
    middle = stat.among(slice(int(stat.row[1]), int(stat.row[3])))
    assert middle.row.tolist() == stat.row[1:3].tolist()


@given(
    st.dictionaries(st.integers(0, 20), st.integers(-5, 5)),
    st.lists(st.integers(NONE, 22), max_size=8),
    st.sampled_from((np.int32, np.int64)),
)
def test_a_stat_is_found_at_any_rows(
    values: dict[int, int], rows: list[int], dtype: type[np.integer]
) -> None:
    known = sorted(values)
    stat = HostStat(
        np.array(known, dtype=dtype), np.array([values[row] for row in known], dtype=dtype)
    )
    asked = np.array(rows, dtype=np.int64)
    assert stat.has(asked).tolist() == [row in values for row in rows]
    found = stat.at(asked, 9)
    assert found.dtype == np.int64
    assert found.tolist() == [values.get(row, 9) for row in rows]


def test_a_device_whose_events_are_alike_is_analysed(tmp_path: Path) -> None:
    """Times and rows are swept as whole columns, also where all hold the same value."""
    trace = new_trace(length_ms=20)
    step = Step(trace, 0)
    for _ in range(3):
        step.kernel(0, 2, 8)
    trace.write(tmp_path)
    columns = load(tmp_path).device_columns
    assert set(columns.start_ps.tolist()) == {columns.start_ps[0]}
    assert traceview.analyze(tmp_path).results.device_time is not None


def test_a_thread_may_be_named_after_a_number_of_any_length() -> None:
    names = ("a/7", "b", "c/" + "9" * 5000, "d/-7/NVTX", "e")
    ids = (1, 7, 3, 4, -7)
    lines = [
        LineInfo(0, NONE, "/host:CPU", id_, name, 0, {})
        for id_, name in zip(ids, names, strict=True)
    ]
    assert threads(lines).tolist() == [0, 0, 2, 3, 3]
