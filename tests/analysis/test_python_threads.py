"""A Python thread that keeps the lock from the step is a finding with its line, on both sides of each limit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import traceview
from scripts.scenarios.model import Step, marked_steps, new_trace
from tests.analysis.made import the
from tests.python_sidecars import (
    PROFILE_START_NS,
    Line,
    Sample,
    clocks_group,
    python_group,
)
from tests.sidecars import write_sidecar
from traceview.analysis.facts.selection import select
from traceview.analysis.facts.threads import ThreadAtWork, core_waits, threads_at_work
from traceview.analysis.measures.context import Context
from traceview.analysis.rules.finding import Finding

MAIN, BESIDE = 0, 1
THREADS: list[dict[str, Any]] = [
    {"ident": 140_000, "name": "MainThread", "native_id": 1},
    {"ident": 150_000, "name": "statistics", "native_id": 77},
]
STEP: Line = ("train.py", "<module>", 60, True)
COUNT: Line = ("train.py", "count", 12, True)
GET: Line = ("queue.py", "get", 171, False)
PUT: Line = ("queue.py", "put", 140, False)
_ROUNDS = 16
"""In each step."""


def analyzed(
    folder: Path,
    *,
    lock_ms: float = 30,
    round_ms: float = 5,
    at_work_ratio: float | None = 1,
    has_lock: bool | None = True,
    name: str | None = "statistics",
    worker_count: int = 1,
    inner: tuple[Line, ...] = (),
    own_ratio: float | None = None,
) -> tuple[list[ThreadAtWork], dict[str, Finding]]:
    """Eight steps of 100 ms. In each the step waits for the lock for `lock_ms`, and the device works from 30 ms on.

    A round of samples comes every `round_ms` from 1 ms on; the other thread uses a core for `at_work_ratio` of the time until
    the last round, and rests until the next step; of several each does. `has_lock`: whether it is seen to have the lock, of
    several one after the other; None where nobody looked. `inner`: what its line calls. `own_ratio`: the same of
    the thread of the steps.
    """
    trace = new_trace(length_ms=1000)
    executor = trace.thread("tf_Compute", 41)
    samples: list[Sample] = []
    cpu_us: list[int] = []
    held: list[int] = []
    used_us = own_us = 0.0
    for step in marked_steps(trace, count=8, period_ms=100, marker_ms=100):
        step.host("TFE_Py_Execute", 0, 1 + lock_ms)
        step.host("EagerExecute", 0, 1)
        step.host("FunctionRun", 31, 100)
        step.host("replica_0/x:MatMul", 31, 100, thread=executor)
        for number in range(_ROUNDS + 1):
            at_ns = PROFILE_START_NS + round((step.start_ms + 1 + number * round_ms) * 1e6)
            beside = range(BESIDE, BESIDE + worker_count)
            samples += [
                (at_ns, MAIN, (STEP,)),
                *((at_ns, each, (*inner, COUNT)) for each in beside),
            ]
            used_us += 1000 * round_ms * (at_work_ratio or 0) * bool(number)
            used = -1 if at_work_ratio is None else round(used_us)
            own_us += 1000 * round_ms * (own_ratio or 0) * bool(number)
            cpu_us += [-1 if own_ratio is None else round(own_us), *(used for _ in beside)]
            handovers = number if worker_count > 1 else 0
            has = (has_lock and number % worker_count == each - BESIDE for each in beside)
            held += [-1, *(handovers if holds else -1 for holds in has)]
    path = trace.write(folder)
    threads = [
        THREADS[0],
        *({"ident": 150_000 + n, "name": name, "native_id": 77 + n} for n in range(worker_count)),
    ]
    seen = None if has_lock is None else held
    write_sidecar(path, {"python": python_group(samples, threads, cpu_us, held=seen)})
    report = traceview.analyze(folder)
    assert {problem.code for problem in report.capture.problems} == {"no-gpu-plane"}
    loaded = traceview.load(folder)
    rows = threads_at_work(Context(loaded, select(loaded)), 0)
    return rows, {finding.code: finding for finding in report.findings}


@pytest.mark.parametrize(
    ("changes", "is_seen"),
    [
        pytest.param({}, True, id="it has the lock"),
        pytest.param({"at_work_ratio": None}, True, id="no processor time was recorded"),
        pytest.param({"has_lock": False}, False, id="it never has the lock"),
        pytest.param({"has_lock": None}, False, id="nobody looked who has the lock"),
        pytest.param({"name": None}, False, id="a thread that Python did not start"),
        pytest.param({"inner": (GET,)}, False, id="it is seen where it waits"),
        pytest.param({"worker_count": 2}, True, id="two hand it to each other"),
    ],
)
def test_a_thread_that_computes_in_python(
    changes: dict[str, Any], is_seen: bool, tmp_path: Path
) -> None:
    rows, findings = analyzed(tmp_path, **changes)
    keeps_lock = any(2 * max(row.kept_ps, row.awaited_ps) >= row.computed_ps for row in rows)
    assert (keeps_lock, "python-thread" in findings) == (is_seen, is_seen)
    if is_seen:
        assert findings["python-thread"].sentences[0] == ""


@pytest.mark.parametrize(
    ("name", "advice"),
    [("statistics", "Move the work to a process"), ("grain-prefetch_3", "Let processes read")],
)
def test_threads_of_grain_are_told_the_options_of_grain(
    name: str, advice: str, tmp_path: Path
) -> None:
    _, findings = analyzed(tmp_path, name=name)
    assert findings["python-thread"].action.startswith(advice)


@pytest.mark.parametrize(("lock_ms", "is_reported"), [(2.1, True), (1.9, False)])
def test_python_of_the_step_itself_is_no_wait_for_the_lock(
    lock_ms: float, is_reported: bool, tmp_path: Path
) -> None:
    """Of 30 ms that the device is idle, the step waits for the lock in this part only, and runs Python in the rest."""
    rows, findings = analyzed(tmp_path, lock_ms=lock_ms)
    assert len(rows) == 1
    assert ("python-thread" in findings) == is_reported


@pytest.mark.parametrize(
    ("own_ratio", "lost_ms"),
    [(None, 31), (0, 31), (0.2, 25), (1, None)],
)
def test_what_the_step_computes_itself_it_would_compute_anyhow(
    own_ratio: float | None, lost_ms: int | None, tmp_path: Path
) -> None:
    """For 31 ms in which the device is idle the other thread has the lock."""
    _, findings = analyzed(tmp_path, own_ratio=own_ratio)
    lost = findings["python-thread"].loss if "python-thread" in findings else None
    assert (lost and round(lost.ps_per_step / 1e9)) == lost_ms


@pytest.mark.parametrize(
    ("call", "is_lost"),
    [
        pytest.param("PjitFunction(update)", True, id="a call of JAX takes what it is given"),
        pytest.param("FunctionRun", False, id="a graph waits for executors"),
    ],
)
def test_a_call_that_no_device_works_for_waits_for_the_lock(
    call: str, is_lost: bool, tmp_path: Path
) -> None:
    """Eight steps of 100 ms. In the first 30 ms of each the call has begun, no device works, and another thread keeps the lock."""
    trace = new_trace(length_ms=1000)
    samples: list[Sample] = []
    cpu_us: list[int] = []
    held: list[int] = []
    for number, step in enumerate(marked_steps(trace, count=8, period_ms=100, marker_ms=100)):
        step.host(call, 1, 31)
        step.host("DevicePut", 1.1, 30)
        step.kernel(0, 30.5, 100, launch_ms=30.5)
        for at_ms, used_ms in ((1, 0), (30, 29), (31, 29)):
            at_ns = PROFILE_START_NS + round((step.start_ms + at_ms) * 1e6)
            samples += [(at_ns, MAIN, (STEP,)), (at_ns, BESIDE, (COUNT,))]
            cpu_us += [0, 1000 * (29 * number + used_ms)]
            held += [-1, number if at_ms < 31 else -1]
    group = python_group(samples, THREADS, cpu_us, held=held)
    write_sidecar(trace.write(tmp_path), {"python": group})
    found = {row.code: row.loss for row in traceview.analyze(tmp_path).findings}
    lost = found.get("python-thread")
    assert (lost is not None and lost.ps_per_step >= 29 * 10**9) is is_lost


TAKE: Line = ("train.py", "take", 44, True)


@pytest.mark.parametrize(
    ("at", "waits", "works", "has_lock", "said"),
    [
        (GET, True, True, False, "for what statistics does"),
        (GET, True, True, True, "for what statistics does"),
        (PUT, True, True, False, "for what statistics does"),
        # It waits in no function that waits.
        (STEP, True, True, True, "for the GIL, which statistics holds"),
        # Nobody works, or the step runs Python itself.
        (GET, True, False, False, ""),
        (GET, False, True, False, ""),
    ],
)
def test_what_a_thread_makes_or_takes_is_waited_for(
    at: Line, waits: bool, works: bool, has_lock: bool, said: str, tmp_path: Path
) -> None:
    """Eight steps of 100 ms. In the first 30 ms of each the thread of the steps is in a queue, and the other one computes."""
    trace = new_trace(length_ms=1000)
    samples: list[Sample] = []
    cpu_us: list[int] = []
    held: list[int] = []
    used_us = [0, 0]
    for step in marked_steps(trace, count=8, period_ms=100, marker_ms=100):
        step.host("EagerExecute", 0, 0.001)
        step.host("EagerExecute", 30, 30.01)
        step.kernel(0, 30, 100, launch_ms=30)
        for number in range(99):
            at_ns = PROFILE_START_NS + round((step.start_ms + 1 + number) * 1e6)
            is_late = number < 29
            stacks = ((at, TAKE) if is_late else (STEP,)), (COUNT,)
            for thread, is_at_work in enumerate((not (waits and is_late), works and is_late)):
                used_us[thread] += 1000 * is_at_work
                samples.append((at_ns, thread, stacks[thread]))
                cpu_us.append(used_us[thread])
                held.append(0 if has_lock and is_late and thread == BESIDE else -1)
    group = python_group(samples, THREADS, cpu_us, held=held)
    write_sidecar(trace.write(tmp_path), {"python": group})
    found = next(row for row in traceview.analyze(tmp_path).findings if row.loss)
    assert found.code == ("python-thread" if said else "python-stall")
    if waits and not works:
        assert "another thread of the script is in count, train.py:12" in found.explanation
        assert found.action.startswith("Give that more threads")
        assert found.evidence[1].value == "queue.py:171 in get"
    if said:
        # A line that waits does so from its first sample on to the end; what the step needs at one that works is its own.
        lost = "29.0" if at != STEP else "28.9"
        title = f"GPU:0 waits {lost} of 100 ms (29%) {said} in count, train.py:12"
        assert found.title == title


RESULT: Line = ("concurrent/futures/_base.py", "result", 451, False)
ASKS: Line = ("train.py", "ahead", 30, True)
POOL: list[dict[str, Any]] = [
    THREADS[MAIN],
    *(
        {"ident": 150_000 + number, "name": name, "native_id": 77 + number}
        for number, name in enumerate(("feeder", "pool_0", "pool_1"))
    ),
]


@pytest.mark.parametrize(
    ("asks", "worker_count", "held", "action"),
    [
        pytest.param(RESULT, 1, None, "Ask for several at once", id="one after the other"),
        pytest.param(RESULT, 2, None, "Do it in less time, with NumPy", id="two at once"),
        pytest.param(GET, 1, None, "Do it in less time, with NumPy", id="of no pool"),
        pytest.param(GET, 1, -1, "Do it in less time, or in more", id="without the lock"),
        pytest.param(GET, 1, 0, "Do it in less time, with NumPy", id="with the lock"),
    ],
)
def test_results_of_a_pool_are_asked_for_at_once(
    asks: Line, worker_count: int, held: int | None, action: str, tmp_path: Path
) -> None:
    """Eight steps of 100 ms. In the first 30 ms of each the thread of the steps waits for the feeder, and that for the pool."""
    trace = new_trace(length_ms=1000)
    samples: list[Sample] = []
    cpu_us: list[int] = []
    has_lock: list[int] = []
    used_us = [0, 0, 0, 0]
    for step in marked_steps(trace, count=8, period_ms=100, marker_ms=100):
        step.host("EagerExecute", 0, 0.001)
        step.host("EagerExecute", 30, 30.01)
        step.kernel(0, 30, 100, launch_ms=30)
        for number in range(99):
            at_ns = PROFILE_START_NS + round((step.start_ms + 1 + number) * 1e6)
            is_late = number < 29
            stacks = ((GET, TAKE) if is_late else (STEP,), (asks, ASKS), (COUNT,), (COUNT,))
            for thread, stack in enumerate(stacks[: 2 + worker_count]):
                is_at_work = not is_late if thread == MAIN else is_late and thread > BESIDE
                used_us[thread] += 1000 * is_at_work
                samples.append((at_ns, thread, stack))
                cpu_us.append(used_us[thread])
                has_lock.append(held if held is not None and thread > BESIDE and is_late else -1)
    looked = None if held is None else has_lock
    group = python_group(samples, POOL[: 2 + worker_count], cpu_us, held=looked)
    write_sidecar(trace.write(tmp_path), {"python": group})
    found = the(traceview.analyze(tmp_path), "python-thread")
    assert " for what pool_" in found.title
    assert found.action.startswith(action)
    if action.startswith("Ask"):
        assert "feeder waits for each result before it asks for the next" in found.action
        assert found.action.endswith("in ahead, train.py:30.")


def samples_of(step: Step) -> Iterator[Sample]:
    """Every millisecond the thread of the steps is in the call of the step, and the other one counts."""
    for at_ms in range(1, 99):
        at_ns = PROFILE_START_NS + round((step.start_ms + at_ms) * 1e6)
        yield from ((at_ns, MAIN, (STEP,)), (at_ns, BESIDE, (COUNT,)))


@pytest.mark.parametrize(
    ("ends_on", "is_waited_for"),
    [
        pytest.param("beside", True, id="a thread of Python ends it"),
        pytest.param("executor", False, id="an executor ends it"),
    ],
)
def test_a_graph_waits_in_an_asynchronous_op_for_the_thread_that_ends_it(
    ends_on: str, is_waited_for: bool, tmp_path: Path
) -> None:
    """Eight steps of 100 ms. For the first 30 ms of each its graph waits for the queue that the other thread fills."""
    trace = new_trace(length_ms=1000)
    lines = {
        "executor": trace.thread("tf_Compute", 41),
        "beside": trace.thread("python", THREADS[BESIDE]["ident"]),
    }
    samples: list[Sample] = []
    for number, step in enumerate(marked_steps(trace, count=8, period_ms=100, marker_ms=100)):
        key = 900 + number
        step.host("TFE_Py_Execute", 0, 99)
        step.host("FunctionRun", 0.1, 99)
        started, ended = {"_pt": 2, "_p": key}, {"_ct": 2, "_c": key}
        name = "ExecutorState::ProcessAsync"
        step.host(f"{name}::Start", 0.2, 0.3, started, thread=lines["executor"])
        step.host("TFE_Py_FastPathExecute_C", 29.8, 30.2, thread=lines["beside"])
        step.host(f"{name}::Done", 30, 30.1, ended, thread=lines[ends_on])
        step.host("replica_0/x:MatMul", 30.3, 99, thread=lines["executor"])
        samples += samples_of(step)
    write_sidecar(trace.write(tmp_path), {"python": python_group(samples, THREADS)})
    titles = [row.title for row in traceview.analyze(tmp_path).findings if row.loss]
    title = "replica:0 waits 29.8 of 100 ms (30%) for what statistics does in count, train.py:12"
    assert (title in titles) == is_waited_for, titles


@pytest.mark.parametrize(
    ("called_ms", "own_ratio", "lost"),
    [
        pytest.param(60, 0, "77.9 of 100 ms (78%)", id="while the step runs its own graph"),
        pytest.param(60, 0.1, "69.9 of 100 ms (70%)", id="the step's thread computes meanwhile"),
        pytest.param(45, 0, "", id="mostly while it runs none, as for replicas outside of graphs"),
    ],
)
def test_ops_that_another_thread_calls_are_no_part_of_the_step(
    called_ms: float, own_ratio: float, lost: str, tmp_path: Path
) -> None:
    """Eight steps of 100 ms. Another thread runs a graph of its own for all of each, the step an op for 20 ms of its graph."""
    trace = new_trace(length_ms=1000)
    executor = trace.thread("tf_Compute", 41)
    beside = trace.thread("python", THREADS[BESIDE]["ident"])
    samples: list[Sample] = []
    for step in marked_steps(trace, count=8, period_ms=100, marker_ms=100):
        key = round(step.start_ms)
        for number, thread, end_ms in ((0, None, called_ms), (1, beside, 99)):
            produced = {"_pt": 3, "_p": key + number}
            consumed = {"_ct": 3, "_c": key + number, "id": number, "iter_num": 0}
            step.host("TFE_Py_Execute", 0, end_ms, thread=thread)
            step.host("FunctionRun", 0.1, end_ms, produced, thread=thread)
            runs = thread or executor
            step.host("ExecutorState::Process", 0.5, end_ms, consumed, thread=runs)
        step.host("x:MatMul", 5, 25, thread=executor)
        step.host("y:MatMul", 1, 98.9, thread=beside)
        samples += samples_of(step)
    cpu_us = [
        round(own_ratio * (at_ns - PROFILE_START_NS) / 1000) if thread == MAIN else -1
        for at_ns, thread, _ in samples
    ]
    write_sidecar(trace.write(tmp_path), {"python": python_group(samples, THREADS, cpu_us)})
    report = traceview.analyze(tmp_path)
    titles = [row.title for row in report.findings if row.code == "python-thread"]
    # Where the step has an op at the same time, the device is the step's.
    title = f"replica:0 loses {lost} to the core that statistics takes in count, train.py:12"
    assert titles == ([title] if lost else [])


@pytest.mark.parametrize(
    ("on_devices_of_steps", "waits_ms", "is_slowed", "is_mistaken", "said"),
    [
        (True, 60, False, False, "for what statistics does in count, train.py:12"),
        # On another device the other thread may be that of the device, and its program a part of the step.
        (False, 60, False, False, "calls of ops and jitted functions"),
        # What ops lack of the cores is less than two thirds of the loss, or more.
        (True, 10, True, False, "for what statistics does in count, train.py:12"),
        (True, 10, True, True, "for what statistics does in count, train.py:12"),
        (True, 1, True, False, "to the core that statistics takes in count, train.py:12"),
    ],
)
def test_programs_that_another_thread_executes_are_its_own_while_the_step_waits_for_them(
    on_devices_of_steps: bool,
    waits_ms: int,
    is_slowed: bool,
    is_mistaken: bool,
    said: str,
    tmp_path: Path,
) -> None:
    """Eight steps of 100 ms: the thread of the steps waits for the other one, which runs programs; then it dispatches one for 12 ms.

    `is_slowed`: that program has half of the core that it wants, for the other thread has the rest. `is_mistaken`: an op of
    that thread is taken for one of a third thread, whose call ran at the same time; the thread is none of the model so.
    """
    trace = new_trace(length_ms=1000)
    pools = [trace.thread(f"pool{number}", 41 + number) for number in range(2)]
    third = trace.thread("plots", 55)
    beside = trace.thread("python", THREADS[BESIDE]["ident"])
    samples: list[Sample] = []
    for number, step in enumerate(marked_steps(trace, count=8, period_ms=100, marker_ms=100)):
        runs = 20 * number
        for each in range(12):
            begin, run = 1 + 5 * each, {"run_id": runs + each}
            step.host("PjitFunction(draw)", begin, begin + 2, thread=beside)
            step.host("Execute (jit_draw)", begin + 1, begin + 2, run, thread=beside)
            of_device = {"device_ordinal": 0 if on_devices_of_steps else 1}
            step.host("draw.1", begin + 2, begin + 2.1, run | of_device, thread=pools[1])
        begin = waits_ms + 1
        step.host("PjitFunction(step)", begin, begin + 12)
        step.host("Execute (jit_step)", begin + 11, begin + 12, {"run_id": runs + 19})
        stats = {"run_id": runs + 19, "device_ordinal": 0}
        step.host("dot.1", begin + 12, 99, stats, thread=pools[0])
        if is_mistaken:
            # A program of a third thread; an op that ran at the same time is taken for one of it.
            plot = {"run_id": runs + 18}
            step.host("PjitFunction(plot)", 1, 2, thread=third)
            step.host("Execute (jit_plot)", 1, 2, plot, thread=third)
            step.host("plot.1", 2.5, 2.6, plot | {"device_ordinal": 1}, thread=beside)
        for at_ms in range(1, 99):
            at_ns = PROFILE_START_NS + round((step.start_ms + at_ms) * 1e6)
            own = (GET, STEP) if at_ms < begin else (STEP,)
            samples += [(at_ns, MAIN, own), (at_ns, BESIDE, (COUNT,))]
    cpu_us = [
        round((at_ns - PROFILE_START_NS) / 1000 * (thread == BESIDE))
        for at_ns, thread, _ in samples
    ]
    facts: dict[str, Any] = {"python": python_group(samples, THREADS, cpu_us)}
    if is_slowed:
        loads = {1: (0.0, 0.0), 41: (0.5, 0.5), 77: (1.0, 0.0)}
        facts["threads"] = clocks_group(loads, length_ms=1000, idents={77: 150_000})
        facts["cores"] = {"machine_count": 2, "usable_count": 2}
    write_sidecar(trace.write(tmp_path), facts)
    report = traceview.analyze(tmp_path)
    titles = [row.title for row in report.findings]
    assert any(said in title for title in titles), titles
    assert any("calls of ops and jitted functions" in title for title in titles) is (
        not on_devices_of_steps
    ), titles
    metrics = {row.metric for each in report.findings for row in each.evidence}
    assert "lock_kept_ratio" not in metrics
    loaded = traceview.load(tmp_path)
    if waits := core_waits(Context(loaded, select(loaded)), 0):
        assert {waits.clocks.numbers[place] for place in waits.model} == {1, 41}
