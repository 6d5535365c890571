"""Collectives: what they cost, which are small, gradients that are summed without them, and when that is a finding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import traceview
from scripts.cuda_trace import NCCL_NAME, CudaTrace
from scripts.scenarios import SCENARIOS
from scripts.scenarios.collectives import all_reduce, layer_step
from scripts.scenarios.model import Step, marked_steps, ms, new_trace
from tests.analysis.made import analyzed
from tests.sidecars import write_sidecar
from traceview.analysis.exchange.collective_sums import CollectiveResult
from traceview.analysis.exchange.collectives import EXPOSED, OFF_GPU, SMALL
from traceview.analysis.exchange.gradient_sums import sums_off_links
from traceview.analysis.facts.selection import select
from traceview.analysis.measures.context import Context
from traceview.analysis.rules.finding import Finding
from traceview.analysis.rules.words import Number
from traceview.report.model import Report
from traceview.trace.reading.load import load


def reduced(exposed_ms: float, late_ms: float = 0.0, *, steps: int = 4) -> CudaTrace:
    """Two GPUs; in each step a sum that nothing hides, to which GPU 1 comes late."""
    trace = new_trace()
    for step in marked_steps(trace, count=steps):
        for ordinal in range(2):
            step.kernel(ordinal, 0.1, 20)
            step.kernel(ordinal, 20 + late_ms * ordinal, 20 + late_ms + exposed_ms, name=NCCL_NAME)
    return trace


def result_of(report: Report) -> CollectiveResult:
    assert report.results.collectives is not None
    return report.results.collectives


def findings(report: Report) -> dict[str, Finding]:
    return {
        one.code: one
        for one in report.findings
        if one.code in (EXPOSED.code, SMALL.code, OFF_GPU.code)
    }


@pytest.mark.parametrize(
    ("exposed_ms", "severity"),
    [(4.98, None), (5.0, "warning"), (10, "critical")],
)
def test_exposed_communication(tmp_path: Path, exposed_ms: float, severity: str | None) -> None:
    """Of both GPUs in steps of 50 ms, the last of which is 49.9 ms long."""
    found = findings(analyzed(tmp_path, reduced(exposed_ms)))
    assert {code: one.severity for code, one in found.items()} == (
        {"collective-exposed": severity} if severity else {}
    )
    if severity:
        one = found["collective-exposed"]
        assert one.loss is not None
        assert one.loss.gpu_time_ps == 2 * 4 * ms(exposed_ms)
        assert one.loss.ps_per_step == ms(exposed_ms)
        assert one.loss.states == ("communication",)
        assert one.devices == ("GPU:0", "GPU:1")
        assert one.confidence == "medium"


def test_a_device_alone_shows_no_transfer(tmp_path: Path) -> None:
    """What the only recorded device spends in a collective may be waiting for the others."""
    trace = new_trace()
    for step in marked_steps(trace):
        step.kernel(0, 0.1, 20)
        step.kernel(0, 20, 30, name=NCCL_NAME)
    report = analyzed(tmp_path, trace)
    result = result_of(report)
    assert (result.count, result.incomplete_count, result.transfer_ps) == (4, 4, 0)
    assert [row.exposed_ps for row in result.devices] == [ms(40)]
    one = findings(report)["collective-exposed"]
    assert (one.severity, one.confidence) == ("warning", "low")
    assert one.sentences[2] == "alone"


# Calls


@pytest.mark.parametrize(
    ("strategy", "action"),
    [
        ({"class": "MirroredStrategy"}, "nccl"),
        ({"class": "MirroredStrategy", "packs": 1}, "packed"),
        ({"class": "MirroredStrategy", "packs": 4}, "nccl"),
        ({"class": "CollectiveAllReduceStrategy", "bytes_per_pack": 0}, "packed"),
        ({"class": "CollectiveAllReduceStrategy", "bytes_per_pack": 1 << 20}, "split"),
    ],
)
def test_the_action_is_about_the_calls_of_the_strategy(
    strategy: dict[str, Any], action: str, tmp_path: Path
) -> None:
    (path,) = SCENARIOS["several_packs"]().write(tmp_path)
    write_sidecar(path, {"strategy": strategy})
    one = findings(traceview.analyze(tmp_path))["collective-exposed"]
    assert one.sentences[1] == action
    assert one.arguments["calls"] == Number(4, "collective")


# Sums off the links


def test_variables_that_the_cpu_updates_are_the_reason(tmp_path: Path) -> None:
    scenario = SCENARIOS["cpu_bounce"]()
    trace = scenario.traces["host0"]
    thread = trace.thread("tf_Compute", 8_001)
    for start_ms in (0, 50, 100, 150):
        update = "sgd/update/ResourceApplyAdam:ResourceApplyAdam"
        Step(trace, start_ms).host(update, 43.6, 43.62, thread=thread)
    scenario.write(tmp_path)
    found = findings(traceview.analyze(tmp_path))["reduction-off-gpu"]
    assert "Variables are updated on the CPU." in found.explanation


def test_virtual_gpus_are_the_reason_for_one_device(tmp_path: Path) -> None:
    (path,) = SCENARIOS["one_device"]().write(tmp_path)
    physical = [{"type": "GPU", "logical_devices": 2}]
    write_sidecar(path, {"devices": {"physical": physical}})
    found = findings(traceview.analyze(tmp_path))["reduction-off-gpu"]
    assert "NCCL does not support GPUs that are divided into virtual devices." in found.explanation


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("one_device", "one"),
        ("cpu_bounce", "cpu"),
        # Sums on several GPUs, and of no gradients.
        ("hierarchical_copy", None),
        ("scalar_loss", None),
    ],
)
def test_where_gradients_are_summed(name: str, place: str | None, tmp_path: Path) -> None:
    SCENARIOS[name]().write(tmp_path)
    trace = load(tmp_path)
    found = Context(trace, select(trace)).once(sums_off_links)
    assert [each.place for each in found.values()] == ([place] if place else [])


@pytest.mark.parametrize("is_kernel", [False, True])
def test_collectives_sum_the_gradients_where_there_are_any(is_kernel: bool, tmp_path: Path) -> None:
    """A collective op may copy between GPUs over the host itself."""
    scenario = SCENARIOS["cpu_bounce"]()
    step = Step(scenario.traces["host0"], 0)
    if is_kernel:
        step.kernel(0, 47, 48, name=NCCL_NAME)
    else:
        thread = step.trace.thread("collective_ops", 9_001)
        step.host("adam/CollectiveReduceV2:CollectiveReduceV2", 40, 43, thread=thread)
    scenario.write(tmp_path)
    trace = load(tmp_path)
    assert Context(trace, select(trace)).once(sums_off_links) == {}


@pytest.mark.parametrize(
    ("gpus", "copy_ms", "is_found"), [(2, 4, False), (3, 2.4, False), (3, 2.6, True)]
)
def test_summing_on_one_gpu_matters_from_three_on(
    tmp_path: Path, gpus: int, copy_ms: float, is_found: bool
) -> None:
    """Each of three GPUs copies for 5 % of the step."""
    trace = new_trace()
    for step in marked_steps(trace):
        for ordinal in range(gpus):
            step.kernel(ordinal, 0.1, 40)
            step.copy(ordinal, "P2P", 40.1, 40.1 + copy_ms, size=1_000_000, dest=0)
        step.kernel(0, 44.2, 44.4, op="sgd/AddN:AddN")
    report = analyzed(tmp_path, trace)
    found = findings(report)
    assert list(found) == (["reduction-off-gpu"] if is_found else [])
    if is_found:
        loss = found["reduction-off-gpu"].loss
        assert loss is not None
        assert loss.gpu_time_ps == gpus * 4 * ms(copy_ms)


def test_replicas_on_the_cpu_are_information_only(fixtures: Path) -> None:
    report = traceview.analyze(fixtures / "keras-fit-4")
    assert {one.severity for one in findings(report).values()} == {"info"}


@pytest.mark.parametrize(("size", "is_found"), [(349_524, False), (349_526, True)])
def test_copies_below_the_size_of_gradients_are_none(
    tmp_path: Path, size: int, is_found: bool
) -> None:
    """Three copies a step: together 1 MiB."""
    trace = new_trace()
    for step in marked_steps(trace):
        for ordinal in range(3):
            step.kernel(ordinal, 0.1, 40)
            step.copy(ordinal, "P2P", 40.1, 44.1, size=size, dest=0)
        step.kernel(0, 44.2, 44.4, op="sgd/AddN:AddN")
    assert ("reduction-off-gpu" in findings(analyzed(tmp_path, trace))) is is_found


# Small ones


def analyzed_steps(folder: Path, *fillers: object, count: int = 4) -> dict[str, Finding]:
    """The findings on steps of 50 ms, each filled by a function that gets it and a number for its first collective."""
    trace = new_trace()
    for index, step in enumerate(marked_steps(trace, count=count)):
        for fill in fillers:
            assert callable(fill)
            fill(step, 100 * index)
    trace.write(folder)
    return {row.code: row for row in traceview.analyze(folder).findings}


def test_collectives_of_batch_normalization_are_named(tmp_path: Path) -> None:
    finding = analyzed_steps(tmp_path, layer_step)["small-collectives"]
    assert finding.title == (
        "Both GPUs spend 8.00 of 50.0 ms (16%) in 8 collectives of synchronised batch normalisation"
    )
    assert "without synchronized=True" in finding.action


def test_layers_of_another_kind_are_not(tmp_path: Path) -> None:
    def other(step: Step, first: int) -> None:
        layer_step(step, first, layer="memory_bank")

    finding = analyzed_steps(tmp_path, other)["small-collectives"]
    assert finding.title.endswith("in 8 collectives that exchange little each")


@pytest.mark.parametrize(
    ("count", "size", "is_small"),
    [(8, 64_000, True), (7, 4, False), (8, 64_001, False)],
)
def test_many_small_collectives(count: int, size: int, is_small: bool, tmp_path: Path) -> None:
    """They take 2 ms each, beside one of the gradients of 2 ms."""

    def values(step: Step, first: int) -> None:
        for ordinal in range(2):
            step.kernel(ordinal, 1, 10)
        for place in range(count):
            start_ms = 11 + 4 * place
            span, at_ms = (start_ms, start_ms + 2), start_ms - 0.5
            all_reduce(step, [span] * 2, instance=first + place, asked_ms=at_ms, size=size)
        all_reduce(step, [(45, 47)] * 2, instance=first + 50, asked_ms=44)

    found = analyzed_steps(tmp_path, values)
    if is_small:
        small = found["small-collectives"]
        assert small.title == (
            "Both GPUs spend 16.0 of 50.0 ms (32%) in 8 collectives that exchange little each"
        )
        assert "takes a list of tensors" in small.action
        # That of the gradients, 4 %, is too short to be told.
        assert "collective-exposed" not in found
    else:
        assert "small-collectives" not in found
        assert "collective-exposed" in found


@pytest.mark.parametrize(("keys", "lost_ms"), [(17, 16), (18, 21), (35, 21), (36, 16)])
def test_keys_are_made_for_small_collectives(keys: int, lost_ms: int, tmp_path: Path) -> None:
    """A call converts one for each of nine collectives on two GPUs, in 5 ms, before its graph; others convert more."""

    def values(step: Step, first: int) -> None:
        step.host("train_step", 0.1, 49)
        for place in range(keys):
            step.host("convert_to_tensor", 0.2 + 5 * place / keys, 0.2 + 5 * (place + 1) / keys)
        step.host("FunctionRun", 5.2, 49)
        for ordinal in range(2):
            step.kernel(ordinal, 6, 10, launch_ms=5.9)
        for place in range(8):
            start_ms = 11 + 4 * place
            span, at_ms = (start_ms, start_ms + 2), start_ms - 0.5
            all_reduce(step, [span] * 2, instance=first + place, asked_ms=at_ms, size=4)
        all_reduce(step, [(45, 47)] * 2, instance=first + 50, asked_ms=44)

    small = analyzed_steps(tmp_path, values)["small-collectives"]
    assert small.loss is not None
    assert small.loss.ps_per_step == ms(lost_ms)
    assert ("5.00 ms of it pass before the graph runs" in small.explanation) is (lost_ms > 16)
