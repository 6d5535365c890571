"""The right device is a straggler, for the right reason; devices by turns and different hardware are found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

import traceview
from scripts.cuda_trace import NCCL_NAME, CudaTrace
from scripts.scenarios import SCENARIOS
from scripts.scenarios.model import Step, marked_steps, ms, new_trace
from tests.analysis.made import analyzed, in_program, title_of
from tests.python_sidecars import PROFILE_START_NS, Sample, python_group
from tests.trace.test_replicas import FIRST, SECOND, component
from tests.xplane.hlo_messages import ModuleWriter, add_programs
from traceview.analysis.exchange.balance import CHANCE, Balance, is_steady
from traceview.analysis.facts.selection import select
from traceview.analysis.measures.context import Context
from traceview.analysis.rules.finding import Finding
from traceview.analysis.rules.rule import CRITICAL_LIMIT, LIMIT
from traceview.ledger.states import State
from traceview.report.model import Report
from traceview.trace.reading.load import load

ALL_REDUCE = "CollectiveReduceV2:CollectiveReduceV2"
SEND = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
CODES = {"straggler-gpu", "late-by-turns", "serial-gpus", "pipeline-bubble"}


def balance(report: Report) -> Balance:
    assert report.results.balance is not None
    return report.results.balance


def findings(report: Report) -> dict[str, Finding]:
    return {row.code: row for row in report.findings if row.code in CODES}


def late_by(*delays: tuple[float, ...]) -> CudaTrace:
    """GPUs compute 10 of 50 ms, each so much longer in a step, and meet in an all-reduce that ends at 48."""
    trace = new_trace(length_ms=50 * len(delays) + 50)
    steps = marked_steps(trace, count=len(delays), marker_ms=50)
    for step, of_step in zip(steps, delays, strict=True):
        for ordinal, delay in enumerate(of_step):
            step.kernel(ordinal, 2, 12 + delay)
            step.kernel(ordinal, 12 + delay, 48, name=NCCL_NAME, op=ALL_REDUCE, stream=22)
    return trace


def read_in(
    steps: Sequence[Step],
    *,
    load: float = 0.0,
    function: Callable[[int], str] = lambda _: "read",
) -> dict[str, Any]:
    """A sidecar: every 2 of 100 ms of each step its thread is in a function of the script, and has so much of a core.

    `function`: its name, by the milliseconds since the begin of the step.
    """
    rounds = [(step.start_ms + ms, ms) for step in steps for ms in range(0, 100, 2)]
    samples: list[Sample] = [
        (PROFILE_START_NS + round(at_ms * 1e6), 0, (("train.py", function(ms), 12, True),))
        for at_ms, ms in rounds
    ]
    caller = [{"ident": None, "name": "MainThread", "native_id": 1}]
    cpu_us = [round(1e3 * load * at_ms) for at_ms, _ in rounds]
    return {"python": python_group(samples, caller, cpu_us)}


# The straggler


@pytest.mark.parametrize(
    ("waits_ms", "severity"),
    [
        (100 * LIMIT, "warning"),
        (100 * LIMIT - 0.1, None),
        (50 * CRITICAL_LIMIT, "critical"),
        (50 * CRITICAL_LIMIT - 0.1, "warning"),
    ],
)
def test_waiting_for_a_device_costs_its_share_of_the_gpu_time(
    waits_ms: float, severity: str | None, tmp_path: Path
) -> None:
    """Two GPUs in steps of 50 ms: 100 ms of GPU time each, and 50 ms that the wait makes longer."""
    finding = findings(analyzed(tmp_path, late_by(*[(0, waits_ms)] * 4))).get("straggler-gpu")
    assert (finding.severity if finding else None) == severity
    if finding:
        assert (finding.devices, finding.evidence[0].where) == (("GPU:0",), "GPU:1")
        assert finding.loss is not None
        assert finding.loss.ps_per_step == finding.loss.gain_ps_per_step == ms(waits_ms)
        assert finding.loss.gpu_time_ratio == pytest.approx(waits_ms / 100)


def by_chance(late: int) -> list[tuple[float, float]]:
    """In so many of 40 steps GPU:1 is late, in the others GPU:0."""
    order = np.random.default_rng(1).permutation(40)
    return [(0, 8) if place < late else (8, 0) for place in order]


@pytest.mark.parametrize(
    ("delays", "code"),
    [
        # By chance each of two GPUs is the reason for half of it: beyond that, half of the rest is three quarters.
        ([(0, 8), (0, 8), (0, 8), (8, 0)], "straggler-gpu"),
        ([(0, 8), (0, 8), (0, 2.6), (8, 0)], "late-by-turns"),
        # Steadily; beyond the half that chance gives, 0.35 and 0.25 of the waiting is for it.
        (by_chance(27), "straggler-gpu"),
        (by_chance(25), "late-by-turns"),
    ],
)
def test_a_straggler_is_the_reason_for_most_of_the_waiting(
    delays: list[tuple[float, float]], code: str, tmp_path: Path
) -> None:
    assert set(findings(analyzed(tmp_path, late_by(*delays)))) == {code}


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("step_count", [2, 4, 8, 30])
def test_chance_makes_no_device_steadily_late(count: int, step_count: int) -> None:
    draws = np.random.default_rng(7).exponential(1e9, (2000, count, step_count)).astype(np.int64)
    last = draws.max(axis=1, keepdims=True)
    others = np.sort(draws, axis=1)[:, -2:-1]
    late = np.where(draws == last, (last - others) * (count - 1), 0)
    steady = [is_steady(row, int(row.sum(axis=1).argmax())) for row in late]
    assert np.mean(steady) <= 1.5 * CHANCE


def test_what_chance_may_explain_is_less_sure(tmp_path: Path) -> None:
    for name, delays, confidence in (("chance", (2, 25), "medium"), ("steady", (12, 13), "high")):
        report = analyzed(tmp_path / name, late_by(*[(0, delay) for delay in delays]))
        assert findings(report)["straggler-gpu"].confidence == confidence


def test_copies_that_take_longer_are_a_reason(tmp_path: Path) -> None:
    trace = new_trace()
    for step in marked_steps(trace, marker_ms=50):
        for ordinal in range(2):
            begin = 5 + 8 * ordinal
            step.copy(ordinal, "H2D", 2, begin, size=10**6)
            step.kernel(ordinal, begin, begin + 10)
            step.kernel(ordinal, begin + 10, 40, name=NCCL_NAME, op=ALL_REDUCE, stream=22)
    assert findings(analyzed(tmp_path, trace))["straggler-gpu"].sentences[0] == "copies"


def test_longer_in_one_kernel_of_many_is_more_work(tmp_path: Path) -> None:
    """As often and mostly as fast: one kernel has longer sequences to work on."""
    trace = new_trace()
    for step in marked_steps(trace, marker_ms=50):
        for ordinal in range(2):
            step.kernel(ordinal, 2, 22)
            end = 26 + 6 * ordinal
            step.kernel(ordinal, 22, end, name="void flash::attention_64")
            step.kernel(ordinal, end, 40, name=NCCL_NAME, op=ALL_REDUCE, stream=22)
    late = findings(analyzed(tmp_path, trace))["straggler-gpu"]
    assert (late.evidence[0].where, late.sentences[0]) == ("GPU:1", "work")
    assert "Most of the difference is in void flash::attention_64" in late.explanation


@pytest.mark.parametrize("name", ["custom-loop-2", "custom-loop-4", "keras-fit-2", "keras-fit-4"])
def test_replicas_that_do_the_same_are_no_problem(name: str, fixtures: Path) -> None:
    """They take the cores of their machine from each other."""
    assert not findings(traceview.analyze(fixtures / name))


# One after another


@pytest.mark.parametrize(("overlap", "is_serial"), [(4.1, True), (4.4, False)])
def test_serial_is_less_than_half_of_chance(
    overlap: float, is_serial: bool, tmp_path: Path
) -> None:
    """20 ms each: chance is 160 ms over the time from 2 ms in the first step to the last end in the eighth."""
    trace = new_trace(length_ms=450)
    for step in marked_steps(trace, count=8):
        step.kernel(0, 2, 22)
        step.kernel(1, 22 - overlap, 42 - overlap)
    report = analyzed(tmp_path, trace)
    result = balance(report)
    assert result.concurrency_ratio == pytest.approx(overlap / 20)
    assert result.chance_ratio == pytest.approx(160 / (390 - overlap))
    assert result.is_serial == is_serial
    assert ("serial-gpus" in findings(report)) == is_serial
    verdict = "they run one after another" if is_serial else "low"
    assert f"of the possible time: {verdict}; by chance " in report.to_markdown()


@pytest.mark.parametrize(("count", "is_serial"), [(12, True), (4, False)])
def test_few_turns_may_be_chance(count: int, is_serial: bool, tmp_path: Path) -> None:
    """10 ms each of 50, and never at once: in four steps that happens, in twelve it does not."""
    trace = new_trace(length_ms=650)
    for step in marked_steps(trace, count=count):
        step.kernel(0, 2, 12)
        step.kernel(1, 22, 32)
    assert balance(analyzed(tmp_path, trace)).is_serial == is_serial


@pytest.mark.parametrize(("others", "is_serial"), [(0.5, True), (0.51, False)])
def test_replicas_without_two_cores_take_turns_for_that(
    others: float, is_serial: bool, tmp_path: Path
) -> None:
    """`others`: the cores that other processes take, of two."""
    trace = new_trace(length_ms=650)
    for step in marked_steps(trace, count=12):
        component(step, 1, 2, FIRST, each_ms=18)
        component(step, 2, 24, SECOND, each_ms=18)
    second = 10**9
    busy_ns = round((1 + others) * second)
    load = {"elapsed_ns": second, "cores": 2, "own_ns": second, "busy_ns": busy_ns}
    report = analyzed(tmp_path, trace, sidecar={"load": load})
    assert balance(report).is_serial is is_serial
    assert ("serial-gpus" in findings(report)) is is_serial


@pytest.mark.parametrize(("count", "turn_ms", "rest_ms"), [(1, 10, 20), (2, 10, 10)])
def test_turns_are_what_the_device_waits_that_computes_longest(
    count: int, turn_ms: float, rest_ms: float, tmp_path: Path
) -> None:
    """GPU:1 computes 10 of 50 ms after the 30 of GPU:0, or after its 20 ms: beside each other they would save 10 ms."""
    trace, first_ms = new_trace(length_ms=650), 10 + rest_ms
    for step in marked_steps(trace, count=12):
        step.kernel(0, 2, 2 + first_ms)
        step.kernel(1, 2 + first_ms, 12 + first_ms)
    report = analyzed(tmp_path, trace)
    loss = findings(report)["serial-gpus"].loss
    assert loss is not None
    assert loss.ps_per_step == loss.gain_ps_per_step == ms(turn_ms)
    assert loss.gpu_time_ratio == pytest.approx(turn_ms / 50, rel=0.01)
    waits = [row.waits_ps_per_step for row in balance(report).devices]
    assert waits == [0, ms(rest_ms)], count


def test_devices_with_steps_of_their_own_take_turns_in_the_window(tmp_path: Path) -> None:
    """In each step one of two GPUs computes 30 of 50 ms."""
    trace = new_trace(length_ms=650)
    for number, step in enumerate(marked_steps(trace, count=12)):
        step.kernel(number % 2, 2, 32)
    loss = findings(analyzed(tmp_path, trace))["serial-gpus"].loss
    assert loss is not None
    assert loss.gpu_time_ratio == pytest.approx(30 / 2 / 50, rel=0.1)


# Stages of a pipeline


def stages(batches: int, sum_ms: float = 0.0, compute_ms: float = 10.0) -> CudaTrace:
    """Two GPUs as stages for so many micro-batches a step, forward and back; then one of them comes later to a sum, which ends the step."""
    trace = new_trace(length_ms=850)
    for number, step in enumerate(marked_steps(trace, period_ms=200, marker_ms=200)):
        # What each stage does in a turn forward, and back.
        turns = 2 * (batches + 1)
        for turn in range(turns):
            begin, place = 2 + turn * (compute_ms + 1), turn % (batches + 1)
            is_back = turn > batches
            for ordinal in range(2):
                stage = 1 - ordinal if is_back else ordinal
                end = begin
                if 0 <= place - stage < batches:
                    end += compute_ms
                    step.kernel(ordinal, begin, end)
                step.kernel(ordinal, end, begin + compute_ms + 1, name=SEND, stream=22)
        end = 2 + turns * (compute_ms + 1)
        late = number % 2
        step.kernel(late, end, end + 0.1 + sum_ms)
        for ordinal in range(2):
            start = end + (0.1 + sum_ms) * (ordinal == late)
            step.kernel(ordinal, start, end + 1 + sum_ms, name=NCCL_NAME, op=ALL_REDUCE, stream=22)
    return trace


@pytest.mark.parametrize(
    ("batches", "sum_ms", "code"),
    [
        # 20 ms of each stage in each direction are half of it.
        (1, 0, "pipeline-bubble"),
        (3, 0, "pipeline-bubble"),
        (4, 0, "late-by-turns"),
        # The stages wait for 20 ms each, and one of them so much more at the sum.
        (1, 39, "pipeline-bubble"),
        (1, 41, "late-by-turns"),
    ],
)
def test_few_micro_batches_let_stages_wait(
    batches: int, sum_ms: float, code: str, tmp_path: Path
) -> None:
    report = analyzed(tmp_path, stages(batches, sum_ms))
    assert set(findings(report)) == {code}
    finding = findings(report)[code]
    if code == "pipeline-bubble":
        noun = "micro-batch" if batches == 1 else "micro-batches"
        assert f"about {batches} {noun} on 2 stages" in finding.explanation
    assert {"collective-exposed", "small-collectives"}.isdisjoint(
        row.code for row in report.findings
    )


def ring(folder: Path, scope: str, count: int) -> Report:
    """So many GPUs, which compute for 10 ms and more, and then send something on, until 40 ms of a step of 50."""
    module = ModuleWriter()
    given = module.add("p", "parameter")
    module.computation().root_id = module.add("send.1", "collective-permute", given, scope=scope)
    stats = in_program("send.1", "jit_step", 1)
    trace = new_trace(length_ms=650)
    for number, step in enumerate(marked_steps(trace, count=12)):
        for ordinal in range(count):
            end = 12 + (ordinal + number) % count
            step.kernel(ordinal, 2, end)
            step.kernel(ordinal, end, 40, name=SEND, op=None, stats=stats, stream=22)
    add_programs(trace.write(folder), {"jit_step(1)": module})
    return traceview.analyze(folder)


@pytest.mark.parametrize(
    ("scope", "count", "is_by_one"),
    [
        ("jit(step)/shard_map/ppermute", 4, True),
        ("jit(step)/jvp(ppermute)", 4, False),
        ("jit(step)/transpose(jvp(ppermute))", 4, False),
        ("", 4, False),
        # A sum of two devices sends as much.
        ("jit(step)/shard_map/ppermute", 2, False),
    ],
)
def test_what_is_not_differentiated_is_sent_by_no_stage(
    scope: str, count: int, is_by_one: bool, tmp_path: Path
) -> None:
    """One finding holds the exchanges, and the waits for them: half of them is what a sum of four takes."""
    report = ring(tmp_path, scope, count)
    (exposed,) = (row for row in report.findings if row.code == "collective-exposed")
    assert exposed.loss is not None
    assert exposed.action.startswith("Let one collective do it") is is_by_one
    if is_by_one:
        assert not findings(report)
        assert exposed.loss.ratio == pytest.approx((28 - 1.5) / 2 / 50, rel=0.01)
    else:
        assert exposed.loss.ratio == pytest.approx((29 - count) / 50, rel=0.01)


# Clocks and hardware


@pytest.mark.parametrize("lost", [0, 1])
def test_a_host_without_a_window_keeps_nobody_waiting(lost: int, tmp_path: Path) -> None:
    SCENARIOS["collectives_of_two_hosts"]().write(tmp_path)
    whole = load(tmp_path)
    steps = [replace(of, steps=()) if of.host == lost else of for of in whole.steps_by_host]
    trace = replace(whole, steps_by_host=tuple(steps))
    assert not findings(traceview.analyze(trace, window="steps"))
    ledger = Context(trace, select(trace, "steps")).ledger
    waits = ledger.rows(states=(State.DEVICE_WAIT,))
    unknown = waits & ~np.isin(ledger.columns.by, ledger.devices)
    assert unknown.any() or lost == 0
    computes = ledger.rows(states=(State.COMPUTE,))
    lost_ps = ledger.loss(computes, keeps_waiting=True).ps
    assert ledger.loss(computes).ps <= lost_ps <= sum(ledger.gpu_ps_by_device.values())


@pytest.mark.parametrize(
    ("load", "calls_ms", "waits_ms"), [(0.0, 0, 60), (0.6, 0, 0), (0.0, 40, 30)]
)
def test_who_has_done_its_part_waits_for_others_while_the_thread_of_the_steps_waits(
    load: float, calls_ms: int, waits_ms: int, tmp_path: Path
) -> None:
    """Two replicas compute for 20 and 80 ms of 100, and the thread waits for both, or computes, from the end of the marker on.

    Or it calls a graph between the markers, for `calls_ms` from the tenth on: what that runs is no part of the step, and has a turn.
    """
    trace = new_trace(length_ms=1000)
    threads = [trace.thread("tf_Compute", 41), trace.thread("tf_Compute", 42)]
    steps = marked_steps(trace, count=8, period_ms=100, marker_ms=5)
    for step in steps:
        step.host("FunctionRun", 0, 5)
        if calls_ms:
            step.host("FunctionRun", 10, 10 + calls_ms)
        for number, length_ms in enumerate((20, 80)):
            step.host(f"replica_{number}/x:MatMul", 0, length_ms, thread=threads[number])
    report = analyzed(tmp_path, trace, sidecar=read_in(steps, load=load))
    of_first = traceview.load(tmp_path).ledger().by_state(0)
    # Between eight markers; the first replica has done its part of the turn after 20 ms.
    turn_ms = max(10 + calls_ms - 20, 0) if calls_ms else 0
    assert of_first.get(State.DEVICE_WAIT, 0) == 7 * ms(waits_ms)
    assert of_first.get(State.TURN, 0) == 7 * ms(turn_ms)
    assert of_first[State.BETWEEN] == 7 * ms(80 - waits_ms - turn_ms)
    alone = "replica:0 waits 26.2 of 88.1 ms (30%) for replica:1, which alone computes between steps in read, train.py:12"
    assert title_of(report, "serial-gpus") == (alone if turn_ms else "")


@pytest.mark.parametrize("is_at_a_line", [True, False])
def test_the_line_at_which_the_thread_waits_for_turns_is_named(
    is_at_a_line: bool, tmp_path: Path
) -> None:
    """Two devices compute for 40 ms each, one after the other, while the thread of the steps reads, or is in three functions by turns."""
    trace = new_trace(length_ms=1000)
    threads = [trace.thread(f"device{number}", 70 + number) for number in range(2)]
    steps = marked_steps(trace, count=8, period_ms=100, marker_ms=100)
    for step in steps:
        for number in range(2):
            begin_ms = 5 + 45 * number
            step.host("PjitFunction(step)", begin_ms - 1, begin_ms)
            stats = {"device_ordinal": number}
            step.host("dot.1", begin_ms, begin_ms + 40, stats, thread=threads[number])
    facts = read_in(steps, function=lambda ms: "read" if is_at_a_line else f"f{ms // 2 % 3}")
    title = title_of(analyzed(tmp_path, trace, sidecar=facts), "serial-gpus")
    assert title.startswith("The 2 CPUs run one after another: each idles at least ")
    assert title.endswith(", in read, train.py:12" if is_at_a_line else "of 100 ms (40%)"), title


@pytest.mark.parametrize("is_beside", [False, True])
def test_a_second_forward_pass_on_one_replica_keeps_the_other_waiting(
    is_beside: bool, tmp_path: Path
) -> None:
    """Two replicas train for 58 ms of each step of 100; then a function runs the layer on the first of them for 34.

    `is_beside`: another thread of Python calls it, in the call of the step: that is a cause of its own.
    """
    trace = new_trace(length_ms=1000)
    layer, executor = "model/dense/MatMul:MatMul", trace.thread("tf_Compute_3", 903)
    other = trace.thread("python", 150_000) if is_beside else None
    steps = marked_steps(trace, count=8, period_ms=100, marker_ms=60)
    for number, step in enumerate(steps):
        call_ms = 99 if is_beside else 58
        step.host("EagerLocalExecute: __inference_step_7", 0, call_ms)
        step.host("FunctionRun", 0.5, call_ms)
        component(step, 1, 2, layer, FIRST, each_ms=28)
        component(step, 2, 2, f"replica_1/{layer}", SECOND, each_ms=28)
        step.host("EagerLocalExecute: __inference_values_9", 62, 98, thread=other)
        step.host("FunctionRun", 62.1, 97.5, {"_pt": 3, "_p": 7 * number}, thread=other)
        consumed = {"_ct": 3, "_c": 7 * number, "id": 2, "iter_num": 0}
        step.host("ExecutorState::Process", 63, 97, consumed, thread=executor)
        step.host(layer, 63, 97, thread=executor)
    report = analyzed(tmp_path, trace, sidecar=read_in(steps))
    found = [row for row in report.findings if row.code == "second-forward"]
    assert bool(found) is not is_beside
    for finding in found:
        assert "second forward pass, values; meanwhile replica:1 waits" in finding.title
        assert finding.action.startswith("Run it by strategy.run, each replica")
    assert title_of(report, "serial-gpus") == ""
