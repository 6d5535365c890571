"""Collectives: what they cost, what the link allows, how gradients are summed, which are of layers, and when that is a finding."""

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
from traceview.analysis.rules.finding import Finding
from traceview.analysis.rules.words import Number
from traceview.report.model import Report

NVLINKED = {"gpus": [{"name": "V100", "nvlinks": {"active": 6, "peers": {}}}] * 4}
PCIE = {"gpus": [{"name": "T4", "pcie_generation_max": 3, "pcie_width": 16}] * 4}


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


# Links


def test_gpus_that_are_linked_differently_have_no_link(tmp_path: Path) -> None:
    path = reduced(4).write(tmp_path)
    mixed = {"gpus": [*NVLINKED["gpus"][:1], *PCIE["gpus"][:1]]}
    write_sidecar(path, {"links": mixed, "training": {"gradient_bytes": 100_000_000}})
    result = result_of(traceview.analyze(tmp_path))
    assert (result.link, result.link_bytes_per_second, result.expected_ps) == (None, None, None)


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
    (path,) = SCENARIOS["packs_over_nvlink"]().write(tmp_path)
    write_sidecar(path, {"strategy": strategy})
    one = findings(traceview.analyze(tmp_path))["collective-exposed"]
    assert one.sentences[1] == action
    assert one.arguments["calls"] == Number(4, "collective")
    assert one.arguments.get("packs") == (
        Number(strategy["packs"], "call") if "packs" in strategy else None
    )


# Paths


def test_variables_that_the_cpu_updates_are_the_reason(tmp_path: Path) -> None:
    scenario = SCENARIOS["cpu_bounce"]()
    trace = scenario.traces["host0"]
    thread = trace.thread("tf_Compute", 8_001)
    for start_ms in (0, 50, 100, 150):
        update = "sgd/update/ResourceApplyAdam:ResourceApplyAdam"
        Step(trace, start_ms).host(update, 43.6, 43.62, thread=thread)
    scenario.write(tmp_path)
    assert result_of(traceview.analyze(tmp_path)).path_reason == "variables are updated on the CPU"


@pytest.mark.parametrize("name", ["collective_ring", "one_device"])
def test_virtual_gpus_are_the_reason_for_a_ring_and_for_one_device(
    name: str, tmp_path: Path
) -> None:
    (path,) = SCENARIOS[name]().write(tmp_path)
    physical = [{"type": "GPU", "logical_devices": 2}]
    write_sidecar(path, {"devices": {"physical": physical}})
    reason = result_of(traceview.analyze(tmp_path)).path_reason
    assert reason == "NCCL does not support GPUs that are divided into virtual devices"


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
    assert result_of(report).path == "one_device"
    found = findings(report)
    assert list(found) == (["reduction-off-gpu"] if is_found else [])
    if is_found:
        loss = found["reduction-off-gpu"].loss
        assert loss is not None
        assert loss.gpu_time_ps == gpus * 4 * ms(copy_ms)


def test_replicas_on_the_cpu_are_information_only(fixtures: Path) -> None:
    report = traceview.analyze(fixtures / "keras-fit-4")
    assert result_of(report).path == "collective_ring"
    assert {one.severity for one in findings(report).values()} == {"info"}


@pytest.mark.parametrize(("size", "path"), [(524_287, "none"), (524_288, "one_device")])
def test_copies_below_the_size_of_gradients_are_none(tmp_path: Path, size: int, path: str) -> None:
    """Two copies a step, one each way: together 1 MiB."""
    trace = new_trace()
    for step in marked_steps(trace):
        for ordinal in range(2):
            step.kernel(ordinal, 0.1, 40)
            step.copy(ordinal, "P2P", 40.1, 41.1, size=size, dest=1 - ordinal)
        step.kernel(0, 41.2, 41.4, op="sgd/AddN:AddN")
    assert result_of(analyzed(tmp_path, trace)).path == path


# Layers


def analyzed_steps(folder: Path, *fillers: object, count: int = 4) -> dict[str, Finding]:
    """The findings on steps of 50 ms, each filled by a function that gets it and a number for its first collective."""
    trace = new_trace()
    for index, step in enumerate(marked_steps(trace, count=count)):
        for fill in fillers:
            assert callable(fill)
            fill(step, 100 * index)
    trace.write(folder)
    return {row.code: row for row in traceview.analyze(folder).findings}


def layers(length_ms: float = 1, layer: str = "batch_normalization") -> object:
    return lambda step, first: layer_step(step, first, length_ms=length_ms, layer=layer)


def test_layers_of_another_kind_are_layers(tmp_path: Path) -> None:
    finding = analyzed_steps(tmp_path, layers(layer="memory_bank"))["small-collectives"]
    assert finding.title == "Both GPUs spend 8.00 of 50.0 ms (16%) in collectives of 4 layers"


def sum_of_gradients(step: Step, first: int, *, scope: str, packs: int) -> None:
    """The same layers without collectives, and the gradients summed in some packs of 3 ms, in the backward pass."""
    for ordinal in range(2):
        for place in range(8):
            layer = f"{scope}functional_1/batch_normalization_{place % 4}"
            name = f"{layer}/Sum:Sum" if place < 4 else f"gradient_tape/{layer}/Tile:Tile"
            step.kernel(ordinal, 2 + place, 3 + place, op=name)
        step.kernel(ordinal, 10, 11, op=f"gradient_tape/{scope}loss/Mul:Mul")
        step.kernel(ordinal, 48, 49, op=f"gradient_tape/{scope}functional_1/dense/MatMul:MatMul")
    for pack in range(packs):
        span = (12 + 4 * pack, 15 + 4 * pack)
        op = f"{scope}CollectiveReduceV2_{pack}:CollectiveReduceV2"
        all_reduce(step, [span] * 2, instance=first + 20 + pack, asked_ms=span[0] - 1, op=op)


@pytest.mark.parametrize("scope", ["", "train/"])
@pytest.mark.parametrize("packs", [1, 8])
def test_the_sum_of_the_gradients_is_not_of_layers(packs: int, scope: str, tmp_path: Path) -> None:
    """Also where the script sums them itself, before the backward pass ends and in a scope around the whole step."""
    found = analyzed_steps(
        tmp_path, lambda step, first: sum_of_gradients(step, first, scope=scope, packs=packs)
    )
    assert "small-collectives" not in found
    assert ("collective-exposed" in found) is (packs == 8)


def test_more_collectives_than_the_layers_can_have_are_not_theirs(tmp_path: Path) -> None:
    """Of nine in the backward pass four may be of the layers; nobody knows which."""

    def more(step: Step, first: int) -> None:
        for place in range(5):
            start_ms = 34 + 2 * place
            op = f"CollectiveReduceV2_{20 + place}:CollectiveReduceV2"
            all_reduce(
                step,
                [(start_ms, start_ms + 1)] * 2,
                instance=first + 30 + place,
                asked_ms=start_ms - 0.5,
                op=op,
            )
        for ordinal in range(2):
            step.kernel(ordinal, 45, 46, op="gradient_tape/functional_1/conv2d/Mul:Mul")

    finding = analyzed_steps(tmp_path, layers(), more)["small-collectives"]
    assert finding.arguments["calls"] == Number(4, "collective")
    assert finding.loss is not None
    assert finding.loss.ps_per_step == ms(4)


def test_a_collective_after_the_backward_pass_is_not_of_layers(tmp_path: Path) -> None:
    """As for the norm of all gradients, or a metric."""

    def norm(step: Step, first: int) -> None:
        op = "CollectiveReduceV2_40:CollectiveReduceV2"
        all_reduce(step, [(36, 39)] * 2, instance=first + 40, asked_ms=35, op=op)

    finding = analyzed_steps(tmp_path, layers(), norm)["small-collectives"]
    assert finding.arguments["calls"] == Number(8, "collective")
    assert finding.loss is not None
    assert finding.loss.ps_per_step == ms(8)


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
