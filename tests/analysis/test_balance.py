"""The right device is a straggler, for the right reason, and only past the limits of its rule."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

import traceview
from scripts.cuda_trace import NCCL_NAME, V100_STATS, CudaTrace
from scripts.scenarios import SCENARIOS
from scripts.scenarios.model import Step, marked_steps, ms, new_trace
from tests.sidecars import graph, mirrored, write_sidecar
from tests.trace.test_replicas import component
from traceview.analysis.balance.result import Balance
from traceview.analysis.balance.rules import SINGLE, STRAGGLER
from traceview.analysis.balance.straggler import Straggler, find_straggler
from traceview.analysis.balance.what_if import OTHER_CLOCKS
from traceview.analysis.joined_steps import JoinedSteps
from traceview.analysis.selection import select
from traceview.report.model import Report
from traceview.trace.load import load
from traceview.trace.op_phase import Phase, phase_of

ROOT = Path(__file__).resolve().parents[2]
ALL_REDUCE = "CollectiveReduceV2:CollectiveReduceV2"
BACKWARD = "gradient_tape/model/dense/MatMul:MatMul"


def analyzed(folder: Path, *traces: CudaTrace, **options: Any) -> Report:
    for trace in traces:
        trace.write(folder)
    return traceview.analyze(folder, **options)


def balance(report: Report) -> Balance:
    assert report.results.balance is not None
    return report.results.balance


def codes(report: Report) -> dict[str, str]:
    return {one.code: one.severity for one in report.findings}


def straggler(report: Report) -> Straggler:
    found = balance(report).straggler
    assert found is not None
    return found


def with_lengths(*steps: tuple[float, ...], count: int = 1) -> CudaTrace:
    """A step for each of `steps`: how long every GPU computes in it, in `count` kernels."""
    trace = new_trace(length_ms=60 * len(steps))
    for step, lengths in zip(marked_steps(trace, count=len(steps)), steps, strict=True):
        for ordinal, length in enumerate(lengths):
            for part in range(count):
                begin = 2 + part * length / count
                step.kernel(ordinal, begin, begin + length / count)
    return trace


# Who computes longest


@pytest.mark.parametrize(("above_ms", "is_late"), [(0, True), (-0.1, False)])
def test_a_straggler_computes_longer_by_the_limit(
    above_ms: float, is_late: bool, tmp_path: Path
) -> None:
    length = 30 * (1 + STRAGGLER.limits["longer_ratio"]) + above_ms
    report = analyzed(tmp_path, with_lengths(*[(30, length, 30)] * 5))
    assert (balance(report).straggler is not None) == is_late
    assert ("straggler-gpu" in codes(report)) == is_late


@pytest.mark.parametrize(("often", "is_late"), [(3, True), (2, False)])
def test_a_straggler_is_longest_in_most_steps(often: int, is_late: bool, tmp_path: Path) -> None:
    """GPU 1 takes as much longer than the middle one in all steps; in the others GPU 2 is longer still."""
    steps = [(20, 30, 20 if index < often else 31, 20) for index in range(5)]
    # Middles that differ, so that GPU 1 is not far out by the spread of the devices.
    steps = [(low - 3, length, third, last) for low, length, third, last in steps]
    found = balance(analyzed(tmp_path, with_lengths(*steps))).straggler
    assert (found is not None and found.device == "GPU:1") == is_late


@pytest.mark.parametrize(("least", "is_late"), [(4, True), (3, False)])
def test_a_straggler_stands_out_from_what_varies(
    least: float, is_late: bool, tmp_path: Path
) -> None:
    """GPU 1 takes up to 8 ms longer; half of the 8 is where the middle three of five steps may begin."""
    longer = (0, least, 8, 8, 8)
    report = analyzed(tmp_path, with_lengths(*[(20, 20 + one) for one in longer]))
    assert (balance(report).straggler is not None) == is_late
    if is_late:
        assert straggler(report).spread_ps == ms(8 - least)


@pytest.mark.parametrize(
    ("longer", "is_late"),
    [
        ((6.1, 7), True),
        ((5.9, 7), False),
        ((6, 7, 8), True),
        ((4, 7, 10), False),
        ((5, 5, 8, 8), True),
        ((4, 4, 5, 7, 9, 9, 9), False),
        ((4, 4, 5, 7, 7, 9, 9, 9), True),
        ((1, 1, 1, 5, 5, 9, 9, 9), False),
    ],
)
def test_few_steps_have_to_agree_more(
    longer: tuple[float, ...], is_late: bool, tmp_path: Path
) -> None:
    """Of two steps 13 times what varies: 6.55 over half of 0.9. Of three 4 times, of seven twice, and of eight once."""
    report = analyzed(tmp_path, with_lengths(*[(20, 20 + one) for one in longer]))
    assert (balance(report).straggler is not None) == is_late


def test_the_evidence_of_few_steps_has_their_limit(tmp_path: Path) -> None:
    report = analyzed(tmp_path, with_lengths((20, 26.2), (20, 27)))
    late = next(one for one in report.findings if one.code == "straggler-gpu")
    (varies,) = [one for one in late.evidence if one.metric == "spread_ps"]
    spreads = STRAGGLER.limits["spreads_of_2_steps"]
    assert (varies.value, varies.threshold) == (ms(0.4), int(ms(6.6) / spreads))


def test_the_same_work_more_is_clear_whatever_the_others_do(tmp_path: Path) -> None:
    """10 ms more in every step, of 5 to 40 ms: the share varies by more than its median, the delay does not."""
    lengths = (5, 10, 20, 30, 40)
    found = straggler(analyzed(tmp_path, with_lengths(*[(one, one + 10) for one in lengths])))
    assert (found.device, found.cost_ps_per_step, found.spread_ps) == ("GPU:1", ms(10), 0)
    assert found.spread_ratio > found.longer_ratio


def test_a_device_several_times_slower_in_all_steps_is_one(tmp_path: Path) -> None:
    """Cores change hands, so both lengths vary: still 3.7 times as long in the middle, and longest in 10 of 10."""
    others = (5, 9, 4, 8, 5, 3, 6, 4, 7, 3)
    own = (19, 20, 18, 18, 13, 18, 19, 19, 17, 16)
    found = straggler(analyzed(tmp_path, with_lengths(*zip(others, own, strict=True))))
    assert (found.device, found.step_count, found.of_count) == ("GPU:1", 10, 10)


def test_the_next_device_counts_where_the_longest_is_unsteady(tmp_path: Path) -> None:
    """GPU 2 is longest by far in two of five steps and short in the others, GPU 1 steadily a fifth longer."""
    steps = [(20, 24, third, 20, 20) for third in (60, 60, 23, 10, 10)]
    found = straggler(analyzed(tmp_path, with_lengths(*steps)))
    assert found.device == "GPU:1"


def test_far_out_is_late_even_if_not_always_longest(tmp_path: Path) -> None:
    """GPU 1 takes 33 ms of 30 and in two of four steps another took longer: it is still far out of the rest."""
    steps = [(30, 33, 30.1, 29.9), (30, 33, 30.1, 29.9), (34, 33, 30.1, 29.9), (30, 33, 34, 29.9)]
    found = straggler(analyzed(tmp_path, with_lengths(*steps)))
    assert (found.device, found.step_count, found.of_count) == ("GPU:1", 2, 4)


@pytest.mark.parametrize(("above_ms", "severity"), [(0, "critical"), (-0.2, "warning")])
def test_what_it_costs_decides(above_ms: float, severity: str, tmp_path: Path) -> None:
    longer = 50 * STRAGGLER.limits["critical_ratio"] + above_ms
    report = analyzed(tmp_path, with_lengths(*[(20, 20 + longer)] * 5))
    assert codes(report)["straggler-gpu"] == severity
    assert straggler(report).cost_ps_per_step == ms(longer)


@pytest.mark.parametrize(("above_ms", "is_finding"), [(0, True), (-0.01, False)])
def test_what_costs_next_to_nothing_is_no_finding(
    above_ms: float, is_finding: bool, tmp_path: Path
) -> None:
    """The result names it all the same."""
    longer = 50 * STRAGGLER.limits["warning_ratio"] + above_ms
    report = analyzed(tmp_path, with_lengths(*[(5, 5 + longer)] * 5))
    assert straggler(report).device == "GPU:1"
    assert ("straggler-gpu" in codes(report)) == is_finding


def test_one_step_shows_no_straggler(tmp_path: Path) -> None:
    assert balance(analyzed(tmp_path, with_lengths((20, 40)))).straggler is None


def explanation_of(report: Report) -> str:
    return next(row.explanation for row in report.findings if row.code == "straggler-gpu")


def test_slower_at_the_same_kernels_or_more_of_them(tmp_path: Path) -> None:
    slower = straggler(analyzed(tmp_path / "a", with_lengths(*[(20, 30)] * 4, count=5)))
    assert (slower.cause, slower.launches_ratio) == ("slower_device", 1.0)
    trace = new_trace()
    for step in marked_steps(trace):
        for part in range(3):
            step.kernel(1, 2 + 10 * part, 12 + 10 * part)
            if part < 2:
                step.kernel(0, 2 + 10 * part, 12 + 10 * part)
    more = straggler(analyzed(tmp_path / "b", trace))
    assert (more.cause, more.launches_ratio) == ("more_work", 1.5)
    explanation = explanation_of(traceview.analyze(tmp_path / "b"))
    assert "it launches 50.0% more kernels than the others" in explanation


def test_longer_in_one_kernel_of_many_is_more_work(tmp_path: Path) -> None:
    """As often and mostly as fast: one kernel has longer sequences to work on."""
    trace = new_trace()
    for step in marked_steps(trace):
        for ordinal in range(2):
            step.kernel(ordinal, 2, 22)
            step.kernel(ordinal, 22, 26 + 6 * ordinal, name="void flash::attention_64")
    found = straggler(analyzed(tmp_path, trace))
    assert (found.device, found.cause) == ("GPU:1", "more_work")
    assert found.top_kernels == ("void flash::attention_64",)
    explanation = explanation_of(traceview.analyze(tmp_path))
    assert "no more kernels than the others, but some of its kernels take longer" in explanation


def test_long_names_keep_the_end_that_tells_them_apart(tmp_path: Path) -> None:
    trace = new_trace()
    for step in marked_steps(trace):
        for ordinal in range(2):
            step.kernel(ordinal, 2, 12)
            for place, what in enumerate(("Filter", "Input")):
                begin = 12 + 10 * place
                end = begin + 2 + 6 * ordinal
                step.kernel(ordinal, begin, end, name=f"{'convolution/' * 6}Backprop{what}")
    explanation = explanation_of(analyzed(tmp_path, trace))
    assert "BackpropFilter" in explanation
    assert "BackpropInput" in explanation


def test_sharing_evenly_saves_what_the_longest_computes_beyond_the_mean(tmp_path: Path) -> None:
    """GPU:1 computes 30 ms beside 10 of GPU:0, which begins 4 ms before: the mean of both takes 10 ms less."""
    trace = new_trace()
    for step in marked_steps(trace):
        step.kernel(0, 2, 12)
        for begin in (6, 16, 26):
            step.kernel(1, begin, begin + 10)
    report = analyzed(tmp_path, trace)
    saved = {row.name: row.mean_saved_ps for row in balance(report).what_if}
    assert (saved["concurrent_devices"], saved["balanced_devices"]) == (ms(4), ms(14))
    assert "saves less, about 10.0 ms of the mean step" in explanation_of(report)


# Who comes last


def late_by(*delays: float, period: float = 50) -> CudaTrace:
    """Two GPUs compute 20 ms and meet in an all-reduce; GPU 1 begins later by the delay of each step."""
    trace = new_trace(length_ms=300)
    steps = marked_steps(trace, count=len(delays), period_ms=period, marker_ms=period)
    for step, delay in zip(steps, delays, strict=True):
        for ordinal in range(2):
            begin = 2 + delay * ordinal
            step.kernel(ordinal, begin, begin + 20)
            step.kernel(ordinal, begin + 20, 40, name=NCCL_NAME, op=ALL_REDUCE, stream=22)
    return trace


@pytest.mark.parametrize(("above_ms", "is_late"), [(0, True), (-0.1, False)])
def test_peers_have_to_wait_for_a_share_of_the_step(
    above_ms: float, is_late: bool, tmp_path: Path
) -> None:
    delay = 50 * STRAGGLER.limits["wait_ratio"] + above_ms
    found = balance(analyzed(tmp_path, late_by(*[delay] * 5))).straggler
    assert (found is not None) == is_late


@pytest.mark.parametrize(("often", "is_late"), [(4, True), (3, False)])
def test_last_to_collectives_again_and_again(often: int, is_late: bool, tmp_path: Path) -> None:
    """In the others GPU 0 comes 1.5 ms after GPU 1; from three of five that may be chance."""
    delays = [5.0 if index < often else -1.5 for index in range(5)]
    found = balance(analyzed(tmp_path, late_by(*delays))).straggler
    assert (found is not None) == is_late
    if found is not None:
        assert (found.cause, found.step_count, found.of_count) == ("late_start", 4, 5)
        assert found.spread_ratio == 0


def test_without_collectives_the_end_counts_if_it_began_late(tmp_path: Path) -> None:
    """GPU 1 is later by 4 ms throughout; GPU 0 sums something up in the end, which is no delay."""
    late, sums = new_trace(), new_trace()
    for step in marked_steps(late):
        step.kernel(0, 2, 32)
        step.kernel(1, 6, 36)
    for step in marked_steps(sums):
        step.kernel(0, 2, 40)
        step.kernel(1, 2, 40)
        step.kernel(0, 44, 44.2)
    found = straggler(analyzed(tmp_path / "a", late))
    assert (found.device, found.cause, found.wait_ps_per_step) == ("GPU:1", "late_start", ms(4))
    assert balance(analyzed(tmp_path / "b", sums)).straggler is None


# Replicas on a CPU


def of_replicas(lengths: tuple[tuple[float, float], ...], first: float = 2, **names: str) -> Any:
    """What `find_straggler` says of two replicas that compute so long in each step (milliseconds).

    `first`: how much later the second begins. `names`: of the hosts, each the host of one replica.
    """
    trace = load(ROOT / "fixtures" / "custom-loop-2")
    selection = select(trace, "auto", None)
    if names:
        hosts = tuple(replace(trace.hosts[0], name=name) for name in names.values())
        device_list = tuple(
            replace(device, host=place) for place, device in enumerate(trace.device_list)
        )
        trace = replace(trace, hosts=hosts, device_list=device_list)
        selection = replace(selection, steps=dict.fromkeys((0, 1), selection.steps[0]))
    used = [step for step in selection.steps[0] if step.excluded is None]
    numbers = tuple(step.number for step in used)[: len(lengths)]
    compute = np.array(lengths, dtype=np.int64).T * 10**9
    start = np.array([[step.start_ps for step in used][: len(lengths)]] * 2)
    begins = start + np.array([[0], [1]]) * int(first * 10**9)
    steps = JoinedSteps((0, 1), numbers, start, start + 10**12, compute, begins, begins + compute)
    return find_straggler(trace, selection, steps, None, {}, take_turns=False)


def test_a_replica_is_longest_in_nearly_all_steps() -> None:
    """Replicas take the cores of their machine from each other: four of five steps are no habit."""
    late = of_replicas(((10, 20), (10, 20), (10, 20)))
    assert (late.device, late.shares_cores) == ("replica:1", True)
    once = of_replicas(((10, 20), (10, 20), (10, 20), (20.1, 20)))
    assert once is None


@pytest.mark.parametrize(("longer", "is_late"), [(125, True), (124, False)])
def test_a_replica_is_longer_by_more_than_the_cores_explain(longer: int, is_late: bool) -> None:
    lengths = ((100, longer),) * 4
    assert (of_replicas(lengths) is not None) == is_late
    assert of_replicas(lengths, a="vm1_w0", b="vm2_w1") is not None


def test_replicas_of_one_machine_share_its_cores() -> None:
    lengths = ((10, 20), (10, 20), (10, 20), (20.1, 20))
    assert of_replicas(lengths, a="vm_w0", b="vm_w1") is None
    found = of_replicas(lengths, a="vm1_w0", b="vm2_w1")
    assert (found.device, found.shares_cores) == ("vm2_w1/replica:1", False)


def test_nobody_starts_a_replica_late() -> None:
    """The second one begins and ends 30 ms later in each step: it got its cores later."""
    assert of_replicas(((10, 10),) * 4, first=30) is None


@pytest.mark.parametrize("name", ["custom-loop-2", "custom-loop-4", "keras-fit-2", "keras-fit-4"])
def test_replicas_that_do_the_same_are_no_stragglers(name: str) -> None:
    report = traceview.analyze(ROOT / "fixtures" / name)
    assert balance(report).straggler is None
    assert not {"straggler-gpu", "serial-gpus"} & set(codes(report))


def test_beside_a_replica_with_many_times_the_work_the_others_are_compared(tmp_path: Path) -> None:
    """They compute little and all gradients of their part: without these they would be no part of the work."""
    for gradients in (True, False):
        trace = new_trace()
        op = "gradient_tape/MatMul:MatMul" if gradients else "model/MatMul:MatMul"
        for step in marked_steps(trace, count=6):
            component(step, 1, 2, op)
            component(step, 2, 2, *[f"replica_1/{op}"] * 23)
        found = balance(analyzed(tmp_path / str(gradients), trace)).straggler
        assert (found and found.device) == ("replica:1" if gradients else None)


def test_of_replicas_nothing_is_predicted() -> None:
    found = balance(traceview.analyze(ROOT / "fixtures" / "custom-loop-2"))
    assert found.prediction is None
    assert (
        found.prediction_reason == "replicas share the cores of their host, however many there are"
    )


# Taking turns


@pytest.mark.parametrize(("overlap", "is_serial"), [(4.1, True), (4.4, False)])
def test_taking_turns_is_less_than_half_of_chance(
    overlap: float, is_serial: bool, tmp_path: Path
) -> None:
    """20 ms each: chance is 160 ms over the time from 2 ms in the first step to the last end in the eighth."""
    trace = new_trace(length_ms=450)
    for step in marked_steps(trace, count=8):
        step.kernel(0, 2, 22)
        step.kernel(1, 22 - overlap, 42 - overlap)
    report = analyzed(tmp_path, trace)
    found = balance(report)
    assert found.concurrency_ratio == pytest.approx(overlap / 20)
    assert found.chance_ratio == pytest.approx(160 / (390 - overlap))
    assert found.is_serial == is_serial
    assert ("serial-gpus" in codes(report)) == is_serial
    if is_serial:
        (finding,) = (one for one in report.findings if one.code == "serial-gpus")
        cost = {one.name: one.saved_ps for one in found.what_if}["concurrent_devices"]
        assert (finding.severity, finding.cost_ps_per_step) == ("critical", cost)
        assert cost == ms(20 - overlap)


@pytest.mark.parametrize(("count", "is_serial"), [(12, True), (4, False)])
def test_few_turns_may_be_chance(count: int, is_serial: bool, tmp_path: Path) -> None:
    """10 ms each of 50, and never at once: in four steps that happens, in twelve it does not."""
    trace = new_trace(length_ms=650)
    for step in marked_steps(trace, count=count):
        step.kernel(0, 2, 12)
        step.kernel(1, 22, 32)
    assert balance(analyzed(tmp_path, trace)).is_serial == is_serial


def test_who_takes_turns_is_not_late(tmp_path: Path) -> None:
    """GPU 1 begins when GPU 0 is done, and ends last in every step."""
    SCENARIOS["serial_gpus"]().write(tmp_path)
    found = balance(traceview.analyze(tmp_path))
    assert (found.is_serial, found.straggler) == (True, None)


def test_one_of_those_that_take_turns_may_be_slower(tmp_path: Path) -> None:
    trace = new_trace()
    for step in marked_steps(trace):
        step.kernel(0, 2, 20)
        step.kernel(1, 20, 44)
    report = analyzed(tmp_path, trace)
    assert balance(report).is_serial
    assert straggler(report).cause == "slower_device"


def test_kernels_too_rare_to_meet_show_nothing(tmp_path: Path) -> None:
    """1 ms of each step of 50: that they do not meet is no wonder."""
    trace = new_trace()
    for step in marked_steps(trace):
        step.kernel(0, 2, 3)
        step.kernel(1, 22, 23)
    report = analyzed(tmp_path, trace)
    assert balance(report).concurrency_ratio == 0
    assert "serial-gpus" not in codes(report)


def test_turns_in_one_step_are_information_only(tmp_path: Path) -> None:
    trace = new_trace()
    (step,) = marked_steps(trace, count=1)
    step.kernel(0, 2, 22)
    step.kernel(1, 22, 42)
    report = analyzed(tmp_path, trace)
    (finding,) = (one for one in report.findings if one.code == "serial-gpus")
    assert (finding.severity, finding.confidence) == ("info", "low")


# Clocks


def test_moments_of_hosts_are_not_compared_without_common_clocks(tmp_path: Path) -> None:
    SCENARIOS["clocks_without_collectives"]().write(tmp_path)
    found = balance(traceview.analyze(tmp_path))
    assert found.clock_reason == OTHER_CLOCKS
    told = (found.concurrency_ratio, found.chance_ratio, found.is_serial, found.stagger_ps)
    assert told == (None,) * 4
    assert [(row.start_lag_ps, row.end_lead_ps) for row in found.devices] == [(None, None)] * 2
    assert found.what_if_missing["concurrent_devices"] == found.clock_reason


def test_moments_of_hosts_with_common_collectives_are(tmp_path: Path) -> None:
    SCENARIOS["skewed_clocks"]().write(tmp_path)
    found = balance(traceview.analyze(tmp_path))
    assert found.clock_reason is None
    assert None not in (found.concurrency_ratio, found.stagger_ps)
    assert None not in [row.start_lag_ps for row in found.devices]


# What a straggler is explained by


def test_a_slower_device_whose_clocks_were_held_back_says_so(tmp_path: Path) -> None:
    SCENARIOS["throttled_gpu"]().write(tmp_path / "throttled")
    SCENARIOS["slower_gpu"]().write(tmp_path / "slower")
    throttled, slower = (
        next(
            one
            for one in traceview.analyze(tmp_path / name).findings
            if one.code == "straggler-gpu"
        )
        for name in ("throttled", "slower")
    )
    assert "gpu-throttled gives the reason" in throttled.explanation
    assert "gpu-throttled" in throttled.advice
    assert "its cooling" not in throttled.explanation
    assert "gpu-throttled" not in slower.explanation + slower.advice


def test_a_slower_device_of_another_kind_says_so(tmp_path: Path) -> None:
    SCENARIOS["mixed_models"]().write(tmp_path)
    found = {one.code: one for one in traceview.analyze(tmp_path).findings}
    assert "mixed-gpus says how" in found["straggler-gpu"].explanation
    # Clocks that are set alike make no V100 of a T4.
    assert "nvidia-smi -ac" not in found["mixed-gpus"].advice


# What more devices would do


def test_twice_the_devices_is_a_bound(tmp_path: Path) -> None:
    """Two GPUs send 10 ms uncovered; a ring of four sends half as much again."""
    trace = new_trace()
    for step in marked_steps(trace, marker_ms=50):
        for ordinal in range(2):
            step.kernel(ordinal, 2, 30)
            step.kernel(ordinal, 30, 40, name=NCCL_NAME, op=ALL_REDUCE, stream=22)
    found = balance(analyzed(tmp_path, trace)).prediction
    assert found is not None
    assert (found.device_count, found.step_bound_ps) == (4, ms(55))
    assert found.speedup_bound == pytest.approx(100 / 55)
    assert len(found.assumptions) == 3


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_no_bound_is_above_the_step(name: str, tmp_path: Path) -> None:
    SCENARIOS[name]().write(tmp_path)
    report = traceview.analyze(tmp_path)
    found, steps = report.results.balance, report.results.steps
    if found is None or steps is None or steps.median_ps is None:
        assert found is None or found.what_if == ()
        return
    assert found.what_if
    for one in found.what_if:
        assert 0 <= one.step_bound_ps <= steps.median_ps
        assert one.saved_ps == steps.median_ps - one.step_bound_ps


# What differs


def test_devices_alike_are_one_group(tmp_path: Path) -> None:
    trace = with_lengths(*[(20, 20)] * 4)
    report = analyzed(tmp_path, trace)
    (group,) = balance(report).hardware
    assert (group.core_count, group.clock_max_hz) == (80, 1_530_000_000)
    assert "mixed-gpus" not in codes(report)


@pytest.mark.parametrize("key", ["gpu_device_name", "core_count", "clock_rate"])
def test_any_difference_is_a_finding(key: str, tmp_path: Path) -> None:
    trace = new_trace()
    trace.gpu(0)
    other: Any = "Tesla T4" if key == "gpu_device_name" else 40
    trace.gpu(1, stats={**V100_STATS, key: other})
    for step in marked_steps(trace):
        step.kernel(0, 2, 42)
        step.kernel(1, 2, 42)
    assert codes(analyzed(tmp_path, trace))["mixed-gpus"] == "info"


@pytest.mark.parametrize(("length", "is_uneven"), [(23.9, True), (24.1, False)])
def test_an_uneven_step_has_a_fifth_less_on_one_device(
    length: float, is_uneven: bool, tmp_path: Path
) -> None:
    found = balance(analyzed(tmp_path, with_lengths(*[(30, 30)] * 3, (30, length))))
    assert bool(found.uneven_steps) == is_uneven
    assert found.short_steps == ()
    if is_uneven:
        (one,) = found.uneven_steps
        assert (one.device, one.number, one.is_last, one.usual_ps) == ("GPU:1", 3, True, ms(30))


def test_a_batch_short_for_all_is_not_uneven(tmp_path: Path) -> None:
    found = balance(analyzed(tmp_path, with_lengths(*[(30, 30)] * 3, (10, 10))))
    assert found.uneven_steps == ()
    assert found.short_steps == (3,)


# Gradients


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        (b"model/dense/MatMul:MatMul", Phase.FORWARD),
        (b"gradient_tape/replica_1/model/dense/MatMul:MatMul", Phase.BACKWARD),
        (b"gradients/model/dense/MatMul_grad/MatMul:MatMul", Phase.BACKWARD),
        (b"model/relu:ReluGrad", Phase.BACKWARD),
        (b"x/conv:Conv2DBackpropFilter", Phase.BACKWARD),
        (b"x/norm:FusedBatchNormGradV3", Phase.BACKWARD),
        (b"x/jit(step)/transpose(jvp(dense))/dot_general", Phase.BACKWARD),
        (b"Adam/Adam/update_1/ResourceApplyAdam:ResourceApplyAdam", Phase.OPTIMIZER),
        (b"sgd/update_0_3/mul:Mul", Phase.OPTIMIZER),
        (b"StatefulPartitionedCall/adam_1/mul:Mul", Phase.OPTIMIZER),
        (b"sgd/CollectiveReduceV2:CollectiveReduceV2", Phase.REDUCTION),
        (b"x/NcclAllReduce:NcclAllReduce", Phase.REDUCTION),
        (b"adamant/MatMul:MatMul", Phase.FORWARD),
        (b"fusion_3", Phase.UNKNOWN),
        (b"", Phase.UNKNOWN),
    ],
)
def test_names_tell_the_phase(name: bytes, phase: Phase) -> None:
    assert phase_of(name) is phase


@pytest.mark.parametrize(("above_ms", "is_reached"), [(0.1, True), (-0.1, False)])
def test_constants_of_the_backward_pass_are_not_it(
    above_ms: float, is_reached: bool, tmp_path: Path
) -> None:
    """20 ms in all."""
    length = 20 * SINGLE.limits["backward_ratio"] + above_ms
    trace = new_trace()
    for step in marked_steps(trace):
        for ordinal in range(2):
            step.kernel(ordinal, 2, 22 - length)
            if ordinal == 0:
                step.kernel(ordinal, 22 - length, 22, op=BACKWARD)
    report = analyzed(tmp_path, trace)
    found = balance(report).gradients
    assert found.computed == (("GPU:0",) if is_reached else ())
    assert (found.remark is None) == is_reached
    assert ("single-gpu-gradients" in codes(report)) == is_reached


def one_gpu_trains(folder: Path, sidecar: dict[str, Any] | None) -> Report:
    trace = new_trace()
    for step in marked_steps(trace):
        for ordinal in range(2):
            step.kernel(ordinal, 2, 22)
        step.kernel(0, 22, 42, op=BACKWARD)
    path = trace.write(folder)
    if sidecar is not None:
        write_sidecar(path, {"state": "saved", **sidecar})
    return traceview.analyze(folder)


GPU_0 = {"name": "/physical_device:GPU:0", "type": "GPU", "logical_devices": 1}


@pytest.mark.parametrize(
    ("reason", "sidecar"),
    [
        ("unused_strategy", {"strategy": mirrored("GPU:0", "GPU:1", found_by="memory")}),
        ("one_replica", {"strategy": mirrored("GPU:0")}),
        (
            "outside_scope",
            {
                "strategy": mirrored("GPU:0", "GPU:1"),
                "placement": {
                    "functions": [graph({"GPU:0": 4, "GPU:1": 4}, {"GPU:0": (2, 0)})],
                },
            },
        ),
        (
            "pinned_ops",
            {
                "strategy": mirrored("GPU:0", "GPU:1"),
                "placement": {"functions": [graph({"GPU:0": 8}, without_device=1)]},
            },
        ),
        (
            "small_batch",
            {"strategy": mirrored("GPU:0", "GPU:1"), "batch": {"global": 1}},
        ),
        (
            "visible_devices",
            {
                "variables": {"CUDA_VISIBLE_DEVICES": "0"},
                "devices": {"physical": [GPU_0]},
                "links": {"gpus": [{"name": "a"}, {"name": "b"}]},
            },
        ),
    ],
)
def test_the_reason_that_evidence_shows(
    reason: str, sidecar: dict[str, Any], tmp_path: Path
) -> None:
    report = one_gpu_trains(tmp_path, sidecar)
    found = balance(report).gradients
    assert [one.code for one in found.reasons] == [reason]
    (finding,) = (one for one in report.findings if one.code == "single-gpu-gradients")
    assert finding.severity == "critical"
    assert found.reasons[0].text in finding.explanation
    assert found.reasons[0].advice in finding.advice


def test_without_evidence_the_reason_is_not_known(tmp_path: Path) -> None:
    report = one_gpu_trains(tmp_path, None)
    (finding,) = (one for one in report.findings if one.code == "single-gpu-gradients")
    assert "No recorded evidence shows the reason." in finding.explanation
    assert finding.confidence == "medium"


def test_a_healthy_strategy_gives_no_reason(tmp_path: Path) -> None:
    trace = new_trace()
    for step in marked_steps(trace):
        for ordinal in range(2):
            step.kernel(ordinal, 2, 22)
            step.kernel(ordinal, 22, 42, op=BACKWARD)
    write_sidecar(trace.write(tmp_path), {"strategy": mirrored("GPU:0"), "batch": {"global": 1}})
    found = balance(traceview.analyze(tmp_path)).gradients
    assert (found.is_single, found.reasons) == (False, ())


def test_another_process_is_named(tmp_path: Path) -> None:
    trace = new_trace()
    trace.gpu(1)
    for step in marked_steps(trace):
        step.kernel(0, 2, 22)
        step.kernel(0, 22, 42, op=BACKWARD)
    other = {"pid": 7, "memory_bytes": 8 * 10**9, "utilization_percent": 90}
    samples = {"t_ns": [0], "memory_total_bytes": [16 * 10**9]}
    outside = {
        "devices": [
            {
                "ordinal": 1,
                "memory_total_bytes": 16 * 10**9,
                "other_processes": [other],
                "samples": samples,
            }
        ]
    }
    write_sidecar(trace.write(tmp_path), {"outside_view": outside})
    report = traceview.analyze(tmp_path)
    found = balance(report).gradients
    assert [one.code for one in found.reasons] == ["gpu_shared"]
    assert "unused-gpu" in codes(report)
    assert "single-gpu-gradients" not in codes(report)


# Real traces


@pytest.mark.shared
def test_bert_on_eight_gpus(shared_traces: Path) -> None:
    report = traceview.analyze(shared_traces / "bert-8xV100")
    found = balance(report).gradients
    assert {row.device: row.replicas for row in found.devices} == {"GPU:4": (4,), "GPU:6": (6,)}
    assert (found.computed, found.is_single) == ((), False)
    assert found.remark is not None
    assert found.remark.startswith("the recording does not reach the backward pass")
    assert not set(codes(report)) & {"single-gpu-gradients", "serial-gpus", "straggler-gpu"}


@pytest.mark.shared
def test_jax_gets_no_finding_about_tensorflow(shared_traces: Path) -> None:
    report = traceview.analyze(shared_traces / "jax-8xMI300X")
    found = balance(report)
    assert found.gradients.remark == (
        "the names of the kernels do not show which part of a training step they are"
    )
    alarms = {code for code, severity in codes(report).items() if severity != "info"}
    assert not alarms & {"straggler-gpu", "serial-gpus", "single-gpu-gradients", "mixed-gpus"}


def test_steps_of_two_hosts_are_joined_by_number(tmp_path: Path) -> None:
    """host1 recorded two steps of host0's four; only these compare the devices."""
    hosts = [new_trace("host0"), new_trace("host1")]
    for step in marked_steps(hosts[0]):
        step.kernel(0, 2, 22)
    for index in (1, 2):
        hosts[1].marker(index, ms(50 * index), ms(50 * index + 49.9))
        Step(hosts[1], 50 * index).kernel(0, 2, 32)
    found = balance(analyzed(tmp_path, *hosts))
    assert found.step_count == 2
    assert [row.compute_ps_per_step for row in found.devices] == [ms(20), ms(30)]
    assert found.straggler is not None
    assert (found.straggler.host, found.straggler.device) == ("host1", "host1/GPU:0")


# Titles


@pytest.mark.parametrize(
    ("name", "code", "title"),
    [
        (
            "slower_gpu",
            "straggler-gpu",
            "GPU:2 computes 6.00 ms longer per step (+20.0% vs. the others), 12.0% of the mean 50.0 ms step; GPU:0, 1 and 3 wait for it",
        ),
        (
            "more_work",
            "straggler-gpu",
            "GPU:1 has 10.0 ms more compute per step (+33.3% vs. the others), 20.0% of the mean 50.0 ms step; GPU:0 waits for it",
        ),
        (
            "late_start",
            "straggler-gpu",
            "GPU:1 starts its kernels 8.00 ms late, 16.0% of the mean 50.0 ms step; GPU:0 and 2 wait for it",
        ),
        (
            "sixteen_hosts_of_eight",
            "straggler-gpu",
            "host5/GPU:3 computes 4.00 ms longer per step (+10.0% vs. the others), 8.0% of the mean 50.0 ms step; the other 126 GPUs wait for it",
        ),
        ("serial_gpus", "serial-gpus", "2 GPUs run serially: 0% of the possible overlap"),
        (
            "mixed_models",
            "mixed-gpus",
            "the GPUs differ: Tesla V100-SXM2-16GB, 80 cores, 1530 MHz (GPU:0) and Tesla T4, 40 cores, 1590 MHz (GPU:1)",
        ),
    ],
)
def test_a_title_says_who_does_what_and_how_much(
    name: str, code: str, title: str, tmp_path: Path
) -> None:
    SCENARIOS[name]().write(tmp_path)
    titles = {finding.code: finding.title for finding in traceview.analyze(tmp_path).findings}
    assert titles[code] == title
