"""Checks which line of Python a span of the trace is said to be in, and that damaged samples harm nothing."""

from __future__ import annotations

import json
import struct
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import convert

import traceview
from scripts.scenarios import SCENARIOS
from tests.analysis.made import the
from tests.python_sidecars import (
    PROFILE_START_NS,
    Line,
    Sample,
    compressed,
    python_between_steps,
    python_group,
)
from tests.sidecars import write_sidecar
from traceview.base.intervals import union
from traceview.trace.host.python_lines import PythonLines
from traceview.trace.host.thread_clocks import ThreadClocks, line_ids
from traceview.trace.sidecar.sidecar import PythonRecord, PythonThread, python_samples

MAIN, LOADER = 0, 1
THREADS: list[dict[str, Any]] = [
    {"ident": 140_000, "name": "MainThread", "native_id": 1},
    {"ident": 150_000, "name": None, "native_id": None},
]
"""The first has the id of the line `python3` of the scenarios; the other was never seen to record an event."""

STEP: Line = ("train.py", "main", 60, True)
CALLBACK: Line = ("train.py", "on_train_batch_end", 87, True)
CALLBACK_NEXT: Line = ("train.py", "on_train_batch_end", 88, True)
LOGGING: Line = ("train.py", "on_log", 20, True)
SVD: Line = ("numpy/linalg.py", "svd", 1841, False)
CONSTANT: Line = ("tensorflow/python/framework/constant_op.py", "convert", 108, False)
EXECUTE: Line = ("tensorflow/execute.py", "quick_execute", 53, False)
PARSE: Line = ("loader.py", "parse", 12, True)


def at_ms(ms: float) -> int:
    return PROFILE_START_NS + round(ms * 1e6)


def samples_of_run() -> list[Sample]:
    """Every millisecond; the steps of `input_and_callbacks` begin every 61.3 ms, and their markers take 43 ms."""
    samples: list[Sample] = []
    for ms in range(245):
        in_step = (ms + 0.5) % 61.3
        if in_step < 43:
            stack: tuple[Line, ...] = (EXECUTE, STEP)
        else:
            stack = (LOGGING,) if ms % 8 == 0 else ((CALLBACK_NEXT,), (SVD, CALLBACK))[ms % 3 > 0]
        samples.append((at_ms(ms + 0.5), MAIN, stack))
        samples.append((at_ms(ms + 0.5), LOADER, (PARSE,)))
    return samples


def analyzed(folder: Path, group: Any) -> traceview.Report:
    trace = SCENARIOS["input_and_callbacks"]().write(folder)[0]
    write_sidecar(trace, {"python": group})
    return traceview.analyze(folder)


def costs_between_steps(report: traceview.Report) -> dict[str, float]:
    """What is said to go on between steps, and its part of that time."""
    ledger = report.results.ledger
    assert ledger is not None
    whole_ps = ledger.devices[0].states["between"]
    return {
        row.title.partition("between steps ")[2]: row.loss.ps_per_step / whole_ps
        for row in report.findings
        if row.code == "callback-stall" and row.loss
    }


WAIT: Line = ("threading.py", "wait", 327, False)
RECEIVE: Line = ("multiprocessing/connection.py", "_recv", 395, False)
QUEUE: Line = ("tensorflow/python/distribute/coordinator/cluster_coordinator.py", "get", 470, False)
IDENTITY: Line = ("tensorflow/python/ops/gen_array_ops.py", "identity", 4226, False)
JOIN: Line = ("train.py", "main", 34, True)
SELECT: Line = ("selectors.py", "select", 468, False)
SOCKET: Line = ("socket.py", "readinto", 706, False)
ASYNCIO: Line = ("asyncio/base_events.py", "run_until_complete", 653, False)


SERVER: Line = ("tensorflow/python/training/server_lib.py", "join", 185, False)


def waiting_samples(between: tuple[Line, ...], joins: int, wait: Line = WAIT) -> list[Sample]:
    """The thread of the steps is in `between` outside of markers; a thread of Python joins it the whole time."""
    samples: list[Sample] = []
    for ms in range(245):
        in_step = (ms + 0.5) % 61.3
        samples.append((at_ms(ms + 0.5), MAIN, (EXECUTE, STEP) if in_step < 43 else between))
        samples.append((at_ms(ms + 0.5), joins, (wait, JOIN)))
    return samples


@pytest.mark.parametrize("wait", [WAIT, SERVER], ids=["a thread", "a server"])
def test_a_thread_that_joins_the_one_that_trains_keeps_nothing_waiting(
    wait: Line, tmp_path: Path
) -> None:
    threads = [*THREADS, {"ident": 160_000, "name": "MainThread", "native_id": 3}]
    report = analyzed(tmp_path, python_group(waiting_samples((CALLBACK,), 2, wait), threads))
    assert "train.py:34 in main" not in report.to_json()


def test_native_code_that_calls_python_waits_for_what_that_waits_for(tmp_path: Path) -> None:
    report = analyzed(tmp_path, python_group(waiting_samples((CALLBACK,), LOADER), THREADS))
    assert report.results.idle is not None
    (device,) = report.results.idle.devices
    assert {gap.python for gap in device.gaps if gap.state == "input"} == {"train.py:34 in main"}


@pytest.mark.parametrize(
    ("between", "state", "line", "said"),
    [
        (
            (WAIT, QUEUE),
            "waits",
            "cluster_coordinator.py:470 in get",
            "waits most of the time for what another thread or process makes.",
        ),
        (
            (SELECT, ASYNCIO, CALLBACK),
            "waits",
            "train.py:87 in on_train_batch_end",
            "runs coroutines, of which all wait most of the time, for the network, a file or a timer",
        ),
        (
            (SELECT, SOCKET, CALLBACK),
            "waits",
            "train.py:87 in on_train_batch_end",
            "waits most of the time: for work, a lock, a process, a file, the network or a timer",
        ),
        (
            (IDENTITY,),
            "native",
            "gen_array_ops.py:4226 in identity",
            "mostly calls the framework",
        ),
    ],
)
def test_a_thread_of_the_steps_that_waits_does_not_run_python(
    tmp_path: Path, between: tuple[Line, ...], state: str, line: str, said: str
) -> None:
    report = analyzed(tmp_path, python_group(waiting_samples(between, LOADER), THREADS))
    stall = the(report, "callback-stall")
    assert said in stall.explanation
    assert "save_freq" not in stall.advice
    python = python_between_steps(tmp_path)
    assert python.state == state
    assert python.line.endswith(line)


def of_keras(file: str, function: str) -> Line:
    return f"keras/src/{file}", function, 5, False


@pytest.mark.parametrize(
    ("inner", "named", "action"),
    [
        ((CALLBACK,), "on_train_batch_end", "Let the callback"),
        (
            (SVD, CALLBACK),
            "on_train_batch_end",
            "Do it once before the loop, or only every 100th step",
        ),
        ((CONSTANT, CALLBACK), "on_train_batch_end", "Convert once before the loop"),
        (
            (WAIT, ("queue.py", "get", 171, False), CALLBACK),
            "on_train_batch_end",
            "Give that more threads or processes",
        ),
        (
            (SVD, of_keras("callbacks/model_checkpoint.py", "on_train_batch_end"), CALLBACK),
            "ModelCheckpoint.on_train_batch_end",
            "Let the callback",
        ),
        (
            (SVD, of_keras("callbacks/tensorboard.py", "on_epoch_end"), CALLBACK),
            "TensorBoard.on_epoch_end",
            "Let the callback",
        ),
        (
            (SVD, of_keras("callbacks/callback_list.py", "on_train_batch_end"), CALLBACK),
            "on_train_batch_end",
            "Do it once before the loop, or only every 100th step",
        ),
        (
            (SVD, of_keras("backend/jax/trainer.py", "predict"), CALLBACK),
            "Model.predict",
            "Call model(batch",
        ),
        (
            (
                of_keras("backend/tensorflow/core.py", "convert_to_numpy"),
                of_keras("backend/jax/trainer.py", "fit"),
                of_keras("utils/traceback_utils.py", "error_handler"),
                CALLBACK,
            ),
            "on_train_batch_end",
            "Run several steps per call, model.compile(..., steps_per_execution=10)",
        ),
        (
            (
                of_keras(
                    "trainers/data_adapters/data_adapter_utils.py", "class_weight_to_sample_weights"
                ),
                of_keras("backend/jax/trainer.py", "fit"),
                CALLBACK,
            ),
            "class_weight_to_sample_weights",
            "Give weights with the data",
        ),
    ],
)
def test_what_does_the_work_is_named_with_what_helps(
    inner: tuple[Line, ...], named: str, action: str, tmp_path: Path
) -> None:
    """A method of Keras, or the function of the script."""
    report = analyzed(tmp_path, python_group(waiting_samples(inner, LOADER), THREADS))
    stall = the(report, "callback-stall")
    assert f" in {named}, train.py:87" in stall.title
    assert stall.action.startswith(action)


@pytest.mark.parametrize(
    ("between", "load", "state"),
    [
        pytest.param((CALLBACK,), 0.0, "waits", id="a lock or a sleep in code of the user"),
        pytest.param((CALLBACK,), 0.04, "waits", id="it wakes up now and then"),
        pytest.param((CALLBACK,), 0.06, "runs", id="it shares the cores with many others"),
        pytest.param((SVD, CALLBACK), 1.0, "runs", id="C code that lets go of Python's lock"),
        pytest.param((WAIT, QUEUE), 1.0, "runs", id="a function that mostly waits, and computes"),
        pytest.param((WAIT, QUEUE), None, "waits", id="no processor time: by the name"),
        pytest.param((CALLBACK,), None, "runs", id="no processor time, and no name that waits"),
        pytest.param((IDENTITY,), 0.0, "native", id="a call of TensorFlow, which waits"),
    ],
)
def test_processor_time_says_whether_a_thread_waits(
    tmp_path: Path, between: tuple[Line, ...], load: float | None, state: str
) -> None:
    samples = [row for row in waiting_samples(between, LOADER) if row[1] == MAIN]
    used_us = 0.0
    cpu_us = []
    for _, _, stack in samples:
        # The step computes: it must not count for what runs after it.
        used_us += 1000 * (1 if stack == (EXECUTE, STEP) else load or 0)
        cpu_us.append(-1 if load is None else round(used_us))
    analyzed(tmp_path, python_group(samples, THREADS, cpu_us))
    assert python_between_steps(tmp_path).state == state


GROUP = python_group(samples_of_run(), THREADS)


def with_samples(*rows: tuple[int, int, int]) -> str:
    passed, threads, stacks = zip(*rows, strict=True)
    count = len(rows)
    return compressed(struct.pack(f"<{count}q{count}i{count}i", *passed, *threads, *stacks))


def with_tables(**changes: Any) -> str:
    tables = {"files": ["a"], "functions": ["f"], "frames": [[0, 0, 1, 1]], "stacks": [[0]] * 9}
    return compressed(json.dumps(tables | changes).encode())


@pytest.mark.parametrize(
    "damage",
    [
        {"samples": "no base64!"},
        {"samples": compressed(b"123")},
        {"samples": with_samples((-5, 0, 0))},
        {"samples": with_samples((1, 2, 0))},
        {"samples": with_samples((1, 0, 1 << 20))},
        {"samples": with_samples(((1 << 63) - 1, 0, 0), ((1 << 63) - 1, 0, 0))},
        {"samples": compressed(b"\0" * ((1 << 26) + 16))},
        {"stacks": compressed(b"{")},
        {"stacks": compressed(b"[" * 100_000)},
        {"stacks": compressed(b"\xff")},
        {"stacks": with_tables(frames=[[0, 0, 1]])},
        {"stacks": with_tables(frames=[[1, 0, 1, 1]])},
        {"stacks": with_tables(stacks=[[7]] * 9)},
        {"stacks": with_tables(stacks=[])},
        {"stacks": with_tables(files="train.py")},
        {"threads": []},
        {"samples": 5},
    ],
)
def test_what_is_damaged_is_a_problem_and_the_trace_is_not_lost(
    damage: dict[str, Any], tmp_path: Path
) -> None:
    report = analyzed(tmp_path, GROUP | damage)
    assert [problem.code for problem in report.capture.problems] == ["sidecar-unreadable"]
    assert "python" in report.capture.problems[0].recorded
    assert report.results.idle is not None
    assert {gap.python for gap in report.results.idle.devices[0].gaps} == {None}


@pytest.mark.parametrize(
    ("address", "line_id"),
    [
        # Recorded with TensorFlow 2.21.0: threading.get_ident() and the ids of the lines.
        (140365413821312, 638050373282976081),
        (140364044277440, -3791238499983787869),
        (140364052670144, 3307180426181459670),
    ],
)
def test_the_id_of_a_line_is_a_hash_of_the_thread(address: int, line_id: int) -> None:
    first, _, *others = line_ids(PythonThread(address, None, 7))
    assert first == line_id % (1 << 64)
    assert others == [address, address % (1 << 32), 7]


@given(
    st.lists(
        st.tuples(st.integers(0, 60), st.integers(0, 1), st.integers(0, 5)),
        max_size=40,
        # A round has one sample of a thread.
        unique_by=lambda row: row[:2],
    ),
    st.lists(st.integers(0, 62), min_size=2, max_size=8, unique=True).map(sorted),
    st.booleans(),
)
def test_the_line_is_that_of_most_time_in_the_spans(
    rows: list[tuple[int, int, int]], edges: list[int], is_native: bool
) -> None:
    """Against a recount, half a nanosecond by half a nanosecond."""
    stacks: list[tuple[Line, ...]] = [
        (STEP,), (EXECUTE, STEP), (CALLBACK,), (CALLBACK_NEXT,), (SVD, CALLBACK), (EXECUTE,)
    ]  # fmt: skip
    samples = [(PROFILE_START_NS + ns, thread, stacks[stack]) for ns, thread, stack in sorted(rows)]
    spans = list(zip(edges[::2], edges[1::2], strict=False))
    rounds = sorted({ns for ns, _, _ in rows})
    of_function: Counter[tuple[str, str]] = Counter()
    of_line: Counter[tuple[tuple[str, str], int]] = Counter()
    for t_ns, thread, lines in samples:
        ns = t_ns - PROFILE_START_NS
        user = next((row for row in lines if row[3]), lines[0])
        before = max((before for before in rounds if before < ns), default=ns)
        after = min((after for after in rounds if after > ns), default=ns)
        # Round by round on half nanoseconds; one that needs no lock shares the time to its neighbours with them, however late.
        since, until = (before + ns, ns + after) if is_native else (2 * before, 2 * ns)
        for start, end in spans:
            if thread == MAIN and start < ns <= end:
                moments = sum(2 * start <= moment < 2 * end for moment in range(since, until))
                of_function[user[:2]] += moments
                of_line[user[:2], user[2]] += moments
    late_us, sampler = ([1000] * len(samples), "native") if is_native else (None, None)
    line = _lines_of(samples, late_us=late_us, sampler=sampler)(
        MAIN, [a for a, _ in spans], [b for _, b in spans]
    )
    if not of_function.total():
        assert line is None
        return
    function = (line.frame.file, line.frame.function)
    assert of_function[function] == max(of_function.values()) == line.inside_ps / 500
    assert line.sampled_ps == 500 * of_function.total()
    assert of_line[function, line.frame.line] == max(
        time for (name, _), time in of_line.items() if name == function
    )


Clock = tuple[Sequence[float], Sequence[float], Sequence[float]]
"""When the clock of the loader was read, and what it had run and waited by then, in milliseconds."""


def stays(still_ms: int, round_ms: int = 1) -> tuple[list[int], list[Line], list[float]]:
    """The loader computes for 4 ms on the way to a place, where it then uses no core; times, lines and what it has used."""
    times_ms = [0, 4, *range(4 + round_ms, 5 + still_ms, round_ms)]
    at_place = [PARSE] * (len(times_ms) - 1)
    return times_ms, [CALLBACK, *at_place], [0, *[4] * len(at_place)]


def runs_at(lines: list[Line], used_ms: float) -> tuple[list[int], list[Line], list[float]]:
    """The loader uses so much of a core in each millisecond at the first of these lines."""
    count = lines.count(lines[0])
    return [*range(len(lines))], lines, [used_ms * min(ms, count - 1) for ms in range(len(lines))]


@pytest.mark.parametrize(
    ("sampled", "clock", "span_ms", "state"),
    [
        pytest.param(stays(10), None, (0, 14), "runs", id="off a busy core for a while"),
        pytest.param(stays(11), None, (0, 15), "waits", id="too long for that"),
        pytest.param(stays(3), ([0, 4, 7, 9], [0, 4, 4, 5], [0] * 4), (0, 7), "waits", id="for a file"),
        pytest.param(stays(2), ([0, 4, 7, 9], [0, 4, 4, 5], [0] * 4), (0, 6), "runs", id="too short to tell"),
        # What it was ready without a core shows in its clock once it runs again.
        pytest.param(stays(3), ([0, 4, 7, 9], [0, 4, 4, 5], [0, 0, 0, 3]), (0, 7), "runs", id="others may have had the cores"),
        pytest.param(stays(3, 3), ([0, 4, 7, 9], [0, 4, 4, 5], [0] * 4), (0, 7), "runs", id="another may have kept Python's lock"),
        pytest.param(runs_at([PARSE] * 11, 0.03), ([0, 10], [0, 0.3], [0, 0]), (0, 10), "waits", id="it sleeps most of the time"),
        pytest.param(runs_at([PARSE] * 11, 0.03), ([0, 10], [0, 0.3], [0, 3.9]), (0, 10), "waits", id="less than 5 % of the rest"),
        pytest.param(runs_at([PARSE] * 11, 0.03), ([0, 10], [0, 0.3], [0, 4.1]), (0, 10), "runs", id="others have the cores for as long"),
        # It runs for 5 ms at one line, and for none at another: there it was ready, or slept for 1 ms.
        pytest.param(runs_at([STEP] * 6 + [PARSE] * 5, 1), ([0, 10], [0, 5], [0, 5]), (6, 10), "runs", id="ready while it does not run"),
        pytest.param(runs_at([STEP] * 6 + [PARSE] * 5, 1), ([0, 10], [0, 5], [0, 4]), (6, 10), "waits", id="not ready for all of that"),
    ],
)  # fmt: skip
def test_a_thread_waits_where_it_used_no_core_and_lacked_none(
    sampled: tuple[list[int], list[Line], list[float]],
    clock: Clock | None,
    span_ms: tuple[int, int],
    state: str,
) -> None:
    times_ms, places, used_ms = sampled
    samples = [(at_ms(ms), LOADER, (line,)) for ms, line in zip(times_ms, places, strict=True)]
    cpu_us = [round(1000 * ms) for ms in used_ms]
    clocks = clocks_of(*clock) if clock else None
    lines = python_lines_of(samples, cpu_us, clocks=clocks)
    line = lines.at(LOADER, np.array([span_ms[0] * 10**9]), np.array([span_ms[1] * 10**9]))
    assert line is not None
    assert (line.frame.line, line.state) == (PARSE[2], state)


def _lines_of(
    samples: list[Sample],
    cpu_us: Sequence[int] | None = None,
    late_us: Sequence[int] | None = None,
    held: Sequence[int] | None = None,
    sampler: str | None = None,
) -> Callable[..., Any]:
    if not samples:
        return lambda *_: None
    lines = python_lines_of(samples, cpu_us, late_us, held, sampler=sampler)
    return lambda thread, start, end: lines.at(thread, np.array(start) * 1000, np.array(end) * 1000)


def python_lines_of(
    samples: Sequence[Sample],
    cpu_us: Sequence[int] | None = None,
    late_us: Sequence[int] | None = None,
    held: Sequence[int] | None = None,
    clocks: dict[int, Any] | None = None,
    sampler: str | None = None,
) -> PythonLines:
    group = python_group(samples, THREADS, cpu_us, late_us=late_us, held=held, sampler=sampler)
    read = python_samples(convert(group, PythonRecord))
    assert read is not None
    hosts = [SimpleNamespace(start_ps=0)]
    recording: Any = SimpleNamespace(hosts=hosts, once=lambda _: clocks or {})
    return PythonLines(recording, 0, read, PROFILE_START_NS)


@pytest.mark.parametrize(
    ("kept", "frees_lock"), [(0, True), (2, True), (3, None), (7, None), (8, False), (10, False)]
)
def test_the_lock_is_kept_or_free_where_most_samples_say_so(
    kept: int, frees_lock: bool | None
) -> None:
    """Of ten milliseconds of work it has the lock in so many."""
    samples: list[Sample] = [(at_ms(ms), MAIN, (ROW, LOOP, MODULE)) for ms in range(11)]
    held = [1 if 0 < ms <= kept else -1 for ms in range(11)]
    cpu_us = [1000 * ms for ms in range(11)]
    line = _lines_of(samples, cpu_us, held=held)(MAIN, [500_000], [10_000_000])
    assert line.frees_lock is frees_lock


def test_a_thread_has_the_lock_from_sample_to_sample_if_nobody_else_was_given_it() -> None:
    """Samples come every 10 ms; the one at 20 ms finds the lock let go of, that at 40 ms given away meanwhile."""
    times = [10 * number for number in range(6)]
    samples = [(at_ms(ms), LOADER, (PARSE,)) for ms in times]
    held = python_lines_of(samples, held=[3, 3, -1, 3, 7, -1], late_us=[0] * 6).held(LOADER)
    assert [*zip(held.start // 10**9, held.end // 10**9, strict=True)] == [(0, 15), (25, 45)]
    assert not python_lines_of(samples).held(LOADER).start.size


def clocks_of(
    time_ms: Sequence[float], ran_ms: Sequence[float], waited_ms: Sequence[float]
) -> dict[int, Any]:
    """The clocks of the loader when they were read."""
    time, ran, waited = (
        np.round(np.array(each) * 1e9).astype(np.int64) for each in (time_ms, ran_ms, waited_ms)
    )
    recording: Any = None
    idents = (THREADS[LOADER]["ident"],)
    return {0: ThreadClocks(recording, time, (3,), idents, ran[None], waited[None], frozenset())}


@pytest.mark.parametrize(("computes", "is_named"), [(5, True), (4, False)])
def test_a_line_is_what_ops_wait_for_if_it_computes_for_half_of_the_time(
    computes: int, is_named: bool
) -> None:
    """Of ten milliseconds; where it does not compute it waits for what another process hands over, woken now and then."""
    loads = [0.9] * computes + [0.3] * (10 - computes)
    stacks: list[tuple[Line, ...]] = [(PARSE,)] * computes + [(RECEIVE, PARSE)] * (10 - computes)
    samples = [(at_ms(ms), LOADER, stack) for ms, stack in enumerate([(PARSE,), *stacks])]
    cpu_us = [round(1000 * sum(loads[:ms])) for ms in range(11)]
    lines = python_lines_of(samples, cpu_us)
    spans = np.array([0]), np.array([10**10]), np.array([0])
    (needed,) = lines.of_others(MAIN, *spans, 1, may_wait=False)
    assert (needed is not None) is is_named
    (line,) = lines.of_others(MAIN, *spans, 1, may_wait=True)
    assert line is not None
    assert str(line) == "loader.py:12 in parse"
    assert line.state == ("runs" if is_named else "waits")


# What a loop calls

LOOP: Line = ("train.py", "main", 63, True)
NEXT_IN_LOOP: Line = ("train.py", "main", 65, True)
ROW: Line = ("train.py", "row", 8, True)
COLUMN: Line = ("train.py", "column", 9, True)
FIT: Line = ("train.py", "main", 70, True)
MODULE: Line = ("train.py", "<module>", 90, True)
VECTORIZED: Line = ("numpy/lib/_function_base_impl.py", "__call__", 2543, False)
OUR_OWN: Line = ("traceview/capture/window/step_window.py", "_ended", 401, False)
COLLECTED: Line = ("jax/_src/lib/__init__.py", "_xla_gc_callback", 132, False)


def between(first: tuple[Line, ...], then: tuple[Line, ...]) -> list[Sample]:
    """The thread of the steps is in the first stack outside of markers, and in the other one in the last 7 ms."""
    samples: list[Sample] = []
    for ms in range(245):
        in_step = (ms + 0.5) % 61.3
        stack = then if in_step > 54.3 else first
        samples.append((at_ms(ms + 0.5), MAIN, stack if in_step >= 43 else (EXECUTE, STEP, MODULE)))
    return samples


@pytest.mark.parametrize(
    ("stacks", "titles"),
    [
        pytest.param(
            ((SVD, LOOP, MODULE), (ROW, NEXT_IN_LOOP, MODULE)),
            ["in main, train.py:63 (svd of numpy)", "in row, train.py:8"],
            id="a library and a function",
        ),
        pytest.param(
            ((SVD, LOOP, MODULE), (SVD, NEXT_IN_LOOP, MODULE)),
            ["in main, train.py:63, 65 (svd of numpy)"],
            id="lines that call one library",
        ),
        pytest.param(
            ((VECTORIZED, LOOP, MODULE), (ROW, VECTORIZED, LOOP, MODULE)),
            ["in main, train.py:63 (__call__ of numpy)"],
            id="a function that a library calls",
        ),
        pytest.param(
            ((ROW, LOOP, MODULE), (COLUMN, ROW, LOOP, MODULE)),
            ["in row, train.py:8"],
            id="what a function calls is a part of it",
        ),
        pytest.param(
            ((SVD, CALLBACK, STEP, MODULE), (LOGGING, STEP, MODULE)),
            ["in on_train_batch_end, train.py:87 (svd of numpy)", "in on_log, train.py:20"],
            id="callbacks of fit",
        ),
        pytest.param(
            ((COLLECTED, ROW, LOOP, MODULE), (ROW, LOOP, MODULE)),
            ["in row, train.py:8"],
            id="garbage is collected wherever a thread is",
        ),
        pytest.param(
            ((("_strptime.py", "_getlang", 26, False), ROW, LOOP, MODULE),) * 2,
            ["in row, train.py:8"],
            id="a module of native code",
        ),
        pytest.param(
            (
                (
                    ("scipy/sparse/_compressed.py", "_matmul_sparse", 462, False),
                    ("scipy/sparse/_base.py", "__matmul__", 923, False),
                    *(ROW, LOOP, MODULE),
                ),
            )
            * 2,
            ["in row, train.py:8 (__matmul__ of scipy)"],
            id="the name that is called",
        ),
        pytest.param(((OUR_OWN, LOOP, MODULE),) * 2, [], id="what the capture does is no finding"),
    ],
)
def test_what_a_loop_calls_is_a_cause_of_its_own(
    stacks: tuple[tuple[Line, ...], tuple[Line, ...]], titles: list[str], tmp_path: Path
) -> None:
    report = analyzed(tmp_path, python_group(between(*stacks), THREADS))
    costs = costs_between_steps(report)
    assert list(costs) == titles
    assert sum(costs.values()) == pytest.approx(1 if titles else 0)


def test_a_loop_of_numpy_over_python_is_own_code(tmp_path: Path) -> None:
    stacks = (VECTORIZED, LOOP, MODULE), (ROW, VECTORIZED, LOOP, MODULE)
    report = analyzed(tmp_path, python_group(between(*stacks), THREADS))
    stall = the(report, "callback-stall")
    assert stall.action.startswith("Write its loops with NumPy on whole arrays")


def test_where_no_line_has_half_of_the_time_the_function_around_is_named(tmp_path: Path) -> None:
    around = (ROW, LOOP, MODULE)
    samples = [
        (
            t_ns,
            thread,
            ((f"part_{number % 3}.py", "part", 1, True), *stack) if stack == around else stack,
        )
        for number, (t_ns, thread, stack) in enumerate(between(around, around))
    ]
    report = analyzed(tmp_path, python_group(samples, THREADS))
    stall = the(report, "callback-stall")
    assert stall.title.endswith("between steps in row, train.py:8")


def in_turn(thirds: tuple[int, int, int]) -> list[Sample]:
    """As `between`, with three stacks, each for so many of the milliseconds between the markers; sampled half way."""
    samples: list[Sample] = []
    parts = [ROW] * thirds[0] + [COLUMN] * thirds[1] + [LOGGING] * thirds[2]
    for ms in range(245):
        number = int((ms + 0.5) % 61.3 - 43)
        inner = parts[number] if 0 <= number < len(parts) else None
        stack = (inner, LOOP, MODULE) if inner else (EXECUTE, STEP, MODULE)
        samples.append((at_ms(ms + 0.5), MAIN, stack))
    return samples


@pytest.mark.parametrize(
    ("parts", "costs"),
    [
        pytest.param(
            (8, 6, 5),
            {"in row, train.py:8": 8, "in column, train.py:9": 6, "in on_log, train.py:20": 5},
            id="not by which function has most of the gap",
        ),
        pytest.param(
            (16, 3, 0), {"in row, train.py:8": 16}, id="3 of 61.3 ms are no finding, nor of another"
        ),
    ],
)
def test_a_gap_is_divided_where_the_loop_goes_on(
    parts: tuple[int, int, int], costs: dict[str, float], tmp_path: Path
) -> None:
    """Half way between two samples: a gap of 19 ms, the last of which ends 0.7 ms earlier."""
    found = costs_between_steps(analyzed(tmp_path, python_group(in_turn(parts), THREADS)))
    assert list(found) == list(costs)
    assert [*found.values()] == pytest.approx([ms / 18.3 for ms in costs.values()], abs=0.04)


INFO: Line = ("logging/__init__.py", "info", 1539, False)


@pytest.mark.parametrize(("inner", "ms"), [((INFO,), (18.3,)), ((SVD,), (9, 9))])
def test_what_is_logged_is_one_cause(
    inner: tuple[Line, ...], ms: tuple[float, ...], tmp_path: Path
) -> None:
    """By two functions, for half of a gap of 18.3 ms each."""
    samples = [
        (t_ns, thread, (*inner, *stack) if stack[0] in (ROW, COLUMN) else stack)
        for t_ns, thread, stack in in_turn((9, 10, 0))
    ]
    parts = costs_between_steps(analyzed(tmp_path, python_group(samples, THREADS))).values()
    assert sorted(parts) == pytest.approx([each / 18.3 for each in ms], abs=0.06)


def test_what_a_loop_calls_beside_some_events() -> None:
    """It is in one function for 5 ms, and then in another one, in which the events lie, or in none."""
    stacks = [(ROW, LOOP, MODULE)] * 5 + [(COLUMN, NEXT_IN_LOOP, MODULE)] * 5
    lines = python_lines_of([(at_ms(ms), MAIN, stack) for ms, stack in enumerate(stacks)])
    whole, nowhere = (
        union(np.array([-1]), np.array([10**10])),
        union(np.array([10**11]), np.array([10**11 + 1])),
    )
    events = union(np.array([6 * 10**9]), np.array([7 * 10**9 + 1]))
    beside = lines.beside(MAIN, whole, events)
    assert (beside.start[0], beside.end[-1]) == (0, 4 * 10**9)
    assert not lines.beside(MAIN, whole, nowhere).start.size


@pytest.mark.parametrize(("every_ms", "is_said"), [(1, True), (5, False)])
def test_steps_are_counted_only_where_samples_would_have_met_a_part_of_a_gap(
    every_ms: int, is_said: bool, tmp_path: Path
) -> None:
    """A function takes 12 ms of two gaps; with a sample each 5 ms the others may have it by chance without one."""
    samples = []
    for ms in range(0, 245, every_ms):
        step, in_step = divmod(ms + 0.5, 61.3)
        inner = ROW if in_step < 55 and step in (0, 2) else COLUMN
        stack = (inner, LOOP, MODULE) if in_step >= 43 else (EXECUTE, STEP, MODULE)
        samples.append((at_ms(ms + 0.5), MAIN, stack))
    report = analyzed(tmp_path, python_group(samples, THREADS))
    (row,) = (each for each in report.findings if " in row, train.py:8" in each.title)
    assert ("used steps" in row.title) is is_said


def test_what_is_called_most_counts_wherever_in_it_the_samples_are() -> None:
    inside: list[tuple[Line, ...]] = [
        (
            (f"autograph/{name}.py", name, 7, False),
            ("autograph/api.py", "converted_call", line, False),
        )
        for name, line in (("get", 335), ("log", 321), ("call", 460))
    ]
    stacks = [(*calls, CALLBACK) for calls in (*inside, (SVD,), (SVD,))]
    samples = [(PROFILE_START_NS + ns, MAIN, stack) for ns, stack in enumerate(stacks)]
    line = _lines_of(samples)(MAIN, [0], [9])
    assert line is not None
    assert line.called is not None
    assert (line.called.function, line.state) == ("converted_call", "runs")
