"""Collectives: what they cost, what the link allows, how gradients are summed, and when that is a finding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import traceview
from scripts.cuda_trace import NCCL_NAME, CudaTrace
from scripts.scenarios import SCENARIOS
from scripts.scenarios.model import Step, marked_steps, ms, new_trace
from tests.sidecars import write_sidecar
from traceview.analysis import collectives
from traceview.analysis.base import Finding
from traceview.analysis.collectives.findings import EXPOSED, OFF_GPU, WAIT
from traceview.analysis.collectives.result import CollectiveResult
from traceview.analysis.context import Context
from traceview.analysis.selection import select
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


def analyzed(folder: Path, trace: CudaTrace) -> Report:
    trace.write(folder)
    return traceview.analyze(folder)


def result_of(report: Report) -> CollectiveResult:
    assert report.results.collectives is not None
    return report.results.collectives


def findings(report: Report) -> dict[str, Finding]:
    return {
        one.code: one
        for one in report.findings
        if one.code in (EXPOSED.code, WAIT.code, OFF_GPU.code)
    }


@pytest.mark.parametrize(
    ("exposed_ms", "severity"),
    [(4.99, None), (5.0, "warning"), (14.99, "warning"), (15.0, "critical")],
)
def test_exposed_transfer_past_its_thresholds(
    tmp_path: Path, exposed_ms: float, severity: str | None
) -> None:
    """The median step has 50 ms: 10 % of it are 5, 30 % are 15."""
    assert EXPOSED.limits == {"warning_ratio": 0.10, "critical_ratio": 0.30}
    found = findings(analyzed(tmp_path, reduced(exposed_ms)))
    assert {code: one.severity for code, one in found.items()} == (
        {"collective-exposed": severity} if severity else {}
    )
    if severity:
        one = found["collective-exposed"]
        assert one.cost_ps_per_step == pytest.approx(ms(exposed_ms), abs=1)
        assert one.devices == ("GPU:0", "GPU:1")
        assert one.confidence == "medium"


@pytest.mark.parametrize(("late_ms", "is_finding"), [(2.49, False), (2.5, True)])
def test_waiting_past_its_threshold(tmp_path: Path, late_ms: float, is_finding: bool) -> None:
    """GPU 1 is a straggler, too, which explains the waiting in a whole report."""
    reduced(1, late_ms).write(tmp_path)
    trace = traceview.load(tmp_path)
    context = Context(trace, select(trace))
    found = context.findings(collectives.ANALYSIS)
    assert [finding.code for finding in found] == ([WAIT.code] if is_finding else [])
    for finding in found:
        assert (
            finding.title
            == "GPU:0 waits for other devices in collectives for 2.50 ms of the mean 50.0 ms step (5.0%)"
        )
        assert finding.devices == ("GPU:0",)
        assert finding.cost_ps_per_step == ms(2.5)
        assert "GPU:1 came last to 4 of 4 collectives" in finding.explanation


def test_one_step_is_information_only(tmp_path: Path) -> None:
    one = findings(analyzed(tmp_path, reduced(20, steps=1)))["collective-exposed"]
    assert (one.severity, one.confidence) == ("info", "low")


def test_parts_of_the_exposed_time_add_up(tmp_path: Path) -> None:
    result = result_of(analyzed(tmp_path, reduced(4, 3)))
    assert result.exposed_ps == {"GPU:0": ms(28), "GPU:1": ms(16)}
    assert result.exposed_transfer_ps == {"GPU:0": ms(16), "GPU:1": ms(16)}
    assert result.wait_ps == {"GPU:0": ms(12), "GPU:1": 0}
    assert result.exposed_wait_per_step_ps == {"GPU:0": ms(3), "GPU:1": 0}


def test_a_device_alone_shows_no_transfer(tmp_path: Path) -> None:
    """What the only recorded device spends in a collective may be waiting for the others."""
    trace = new_trace()
    for step in marked_steps(trace):
        step.kernel(0, 0.1, 20)
        step.kernel(0, 20, 30, name=NCCL_NAME)
    report = analyzed(tmp_path, trace)
    result = result_of(report)
    assert (result.count, result.incomplete_count, result.transfer_ps) == (4, 4, 0)
    assert result.exposed_ps == {"GPU:0": ms(40)}
    one = findings(report)["collective-exposed"]
    assert (one.severity, one.confidence) == ("warning", "low")
    assert one.explanation.startswith("This may be transfer or waiting")


def test_a_range_of_steps(tmp_path: Path) -> None:
    SCENARIOS["late_by_turns"]().write(tmp_path)
    result = result_of(traceview.analyze(tmp_path, steps=slice(1, 3)))
    assert (result.count, result.transfer_ps) == (2, ms(4))
    assert result.last_count == {"GPU:0": 0, "GPU:1": 1, "GPU:2": 1, "GPU:3": 0}


# Links


@pytest.mark.parametrize(
    ("links", "link", "speed"),
    [(NVLINKED, "nvlink", 150_000_000_000), (PCIE, "pcie", 15_753_846_144)],
)
def test_what_the_link_would_allow(
    tmp_path: Path, links: dict[str, Any], link: str, speed: int
) -> None:
    """V100s have 6 links of 25 GB/s; 16 lanes of generation 3 carry 15.75 GB/s. 2 · 1/2 of the bytes go over each."""
    path = reduced(4).write(tmp_path)
    write_sidecar(path, {"links": links, "training": {"gradient_bytes": 100_000_000}})
    result = result_of(traceview.analyze(tmp_path))
    assert (result.link, result.link_bytes_per_second) == (link, speed)
    assert result.expected_ps == 100_000_000 * 10**12 // speed
    assert (result.bytes, result.bytes_source) == (100_000_000, "sidecar")
    assert result.algorithm_bytes_per_second == result.bus_bytes_per_second == 25_000_000_000


def test_gpus_that_are_linked_differently_have_no_link(tmp_path: Path) -> None:
    path = reduced(4).write(tmp_path)
    mixed = {"gpus": [*NVLINKED["gpus"][:1], *PCIE["gpus"][:1]]}
    write_sidecar(path, {"links": mixed, "training": {"gradient_bytes": 100_000_000}})
    result = result_of(traceview.analyze(tmp_path))
    assert (result.link, result.link_bytes_per_second, result.expected_ps) == (None, None, None)


def test_devices_may_use_a_faster_link_than_the_recorded(tmp_path: Path) -> None:
    """100 MB in 4 ms, 25 GB/s, beside PCIe of 15.75."""
    path = reduced(4).write(tmp_path)
    write_sidecar(path, {"links": PCIE, "training": {"gradient_bytes": 100_000_000}})
    result = result_of(traceview.analyze(tmp_path))
    assert result.bus_bytes_per_second == 25 * 10**9
    assert result.link_bytes_per_second is not None
    assert result.link_bytes_per_second < result.bus_bytes_per_second


@pytest.mark.parametrize(
    ("packs", "told", "advice"),
    [
        (None, "There are 4 calls per step.", "num_packs=1"),
        (1, "though the strategy is set up to pack all gradients into 1.", "Look for other calls"),
        (
            4,
            "There are 4 calls per step; the strategy is set up to pack the gradients into 4.",
            "num_packs=1",
        ),
    ],
)
def test_calls_are_set_against_packs(
    packs: int | None, told: str, advice: str, tmp_path: Path
) -> None:
    (path,) = SCENARIOS["packs_over_nvlink"]().write(tmp_path)
    write_sidecar(path, {"strategy": {"class": "MirroredStrategy", "packs": packs}})
    finding = findings(traceview.analyze(tmp_path))["collective-exposed"]
    assert told in finding.explanation
    assert advice in finding.advice


@pytest.mark.parametrize(
    ("bytes_per_pack", "advice"),
    [
        (0, "Exchange gradients less often"),
        (1 << 20, "Use fewer and larger calls: without bytes_per_pack in CommunicationOptions"),
    ],
)
def test_collectives_that_pack_by_size_are_packed_without_a_size(
    bytes_per_pack: int, advice: str, tmp_path: Path
) -> None:
    (path,) = SCENARIOS["packs_over_nvlink"]().write(tmp_path)
    strategy = {"class": "CollectiveAllReduceStrategy", "bytes_per_pack": bytes_per_pack}
    write_sidecar(path, {"strategy": strategy})
    finding = findings(traceview.analyze(tmp_path))["collective-exposed"]
    assert finding.advice.startswith(advice)
    assert "num_packs" not in finding.advice
    assert ("Look for other calls" in finding.advice) == (not bytes_per_pack)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (
            "packs_over_nvlink",
            "of 150 GB/s; at full speed the gradients would take 1.00 ms.",
        ),
        (
            "packs_over_pcie",
            "more than the recorded link can (15.8 GB/s): the devices use another link.",
        ),
    ],
)
def test_the_speed_beside_the_link(name: str, told: str, tmp_path: Path) -> None:
    SCENARIOS[name]().write(tmp_path)
    assert told in findings(traceview.analyze(tmp_path))["collective-exposed"].explanation


# Paths


def test_why_gradients_go_to_the_cpu(tmp_path: Path) -> None:
    (path,) = SCENARIOS["cpu_bounce"]().write(tmp_path)
    write_sidecar(path, {"strategy": {"parameter_devices": ["/job:localhost/device:CPU:0"]}})
    report = traceview.analyze(tmp_path)
    assert result_of(report).path_reason == "variables are on the CPU"
    assert "variables are on the CPU" in findings(report)["reduction-off-gpu"].explanation


def test_variables_that_the_cpu_updates_are_the_reason(tmp_path: Path) -> None:
    scenario = SCENARIOS["cpu_bounce"]()
    trace = scenario.traces["host0"]
    thread = trace.thread("tf_Compute", 8_001)
    for start_ms in (0, 50, 100, 150):
        update = "sgd/update/ResourceApplyAdam:ResourceApplyAdam"
        Step(trace, start_ms).host(update, 43.6, 43.62, thread=thread)
    scenario.write(tmp_path)
    assert result_of(traceview.analyze(tmp_path)).path_reason == "variables are updated on the CPU"


def test_virtual_gpus_are_the_reason_for_a_ring(tmp_path: Path) -> None:
    (path,) = SCENARIOS["collective_ring"]().write(tmp_path)
    physical = [{"type": "GPU", "logical_devices": 2}]
    write_sidecar(path, {"devices": {"physical": physical}})
    reason = result_of(traceview.analyze(tmp_path)).path_reason
    assert reason == "NCCL does not support GPUs that are divided into virtual devices"


def test_gathered_gradients_are_a_reason(tmp_path: Path) -> None:
    trace = new_trace()
    for step in marked_steps(trace):
        for ordinal in range(2):
            step.kernel(ordinal, 0.1, 40)
            for place, kind in enumerate(("Reduce", "Gather")):
                op = f"sgd/Collective{kind}V2:Collective{kind}V2"
                step.kernel(ordinal, 30 + place, 30.5 + place, name=NCCL_NAME, op=op)
    result = result_of(analyzed(tmp_path, trace))
    assert result.path == "collective_nccl"
    assert result.path_reason == "some gradients are IndexedSlices, which are gathered"


@pytest.mark.parametrize(("gpus", "severity"), [(2, None), (3, "warning")])
def test_summing_on_one_gpu_matters_from_three_on(
    tmp_path: Path, gpus: int, severity: str | None
) -> None:
    trace = new_trace()
    for step in marked_steps(trace):
        for ordinal in range(gpus):
            step.kernel(ordinal, 0.1, 40)
            step.copy(ordinal, "P2P", 40.1, 41.1, size=1_000_000, dest=0)
        step.kernel(0, 41.2, 41.4, op="sgd/AddN:AddN")
    report = analyzed(tmp_path, trace)
    assert result_of(report).path == "one_device"
    found = findings(report)
    assert {code: one.severity for code, one in found.items()} == (
        {"reduction-off-gpu": severity} if severity else {}
    )
    if severity:
        assert found["reduction-off-gpu"].cost_ps_per_step == ms(1)


def test_replicas_on_the_cpu_are_information_only(fixtures: Path) -> None:
    report = traceview.analyze(fixtures / "keras-fit-4")
    assert result_of(report).path == "collective_ring"
    assert {one.severity for one in findings(report).values()} == {"info"}


def test_no_path_without_a_second_device(fixtures: Path) -> None:
    report = traceview.analyze(fixtures / "plain-1")
    assert report.results.collectives is None
    assert "fewer than two devices" in report.skipped["collectives"]


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


def test_the_sidecar_knows_how_large_gradients_are(tmp_path: Path) -> None:
    trace = new_trace()
    for step in marked_steps(trace):
        for ordinal in range(2):
            step.kernel(ordinal, 0.1, 40)
            step.copy(ordinal, "P2P", 40.1, 41.1, size=1000, dest=1 - ordinal)
        step.kernel(0, 41.2, 41.4, op="sgd/AddN:AddN")
    path = trace.write(tmp_path)
    for gradient_bytes, expected in ((4000, "one_device"), (4001, "none")):
        write_sidecar(path, {"training": {"gradient_bytes": gradient_bytes}})
        assert result_of(traceview.analyze(tmp_path)).path == expected


@pytest.mark.shared
def test_a_sum_that_the_capture_did_not_reach(shared_traces: Path) -> None:
    """BERT on 8 V100: the collectives are asked for, and no gradient moves before the capture ends."""
    result = result_of(traceview.analyze(shared_traces / "bert-8xV100"))
    assert (result.path, result.count) == ("none", 0)
    assert result.path_ops == ("allreduce/CollectiveReduce:CollectiveReduce",)
    assert "neither kernels nor copies" in (result.path_reason or "")


@pytest.mark.shared
def test_jax_has_no_reduction_of_tensorflow(shared_traces: Path) -> None:
    result = result_of(traceview.analyze(shared_traces / "jax-8xMI300X"))
    assert (result.path, result.path_ops, result.path_reason) == ("none", (), None)


def test_one_call_per_step_cannot_be_fewer(tmp_path: Path) -> None:
    SCENARIOS["exposed_collectives"]().write(tmp_path)
    one = findings(traceview.analyze(tmp_path))["collective-exposed"]
    assert "There is 1 call per step." in one.explanation
    assert one.advice.startswith("Exchange gradients less often: ")


def test_devices_that_wait_alike_share_a_title(tmp_path: Path) -> None:
    SCENARIOS["late_by_turns"]().write(tmp_path)
    one = findings(traceview.analyze(tmp_path))["collective-wait"]
    assert one.title == (
        "each of the 4 devices waits for other devices in collectives for 4.50 ms of the mean 50.0 ms step (9.0%)"
    )
    assert "No device came last to more than 1 of 4 collectives." in one.explanation
    assert one.advice.startswith("Now one device is late and now another")
