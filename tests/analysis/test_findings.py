"""Each finding starts exactly at its threshold, has evidence past it, and is made once per cause."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import traceview
from scripts.cuda_trace import PROFILE_START_NS, CudaTrace
from scripts.scenarios import SCENARIOS
from scripts.scenarios.model import marked_steps, ms, new_trace
from scripts.scenarios.plain import plain_step
from tests.analysis.made import analyzed, loss_of, the
from tests.command import Command
from tests.sidecars import write_sidecar
from traceview.analysis.gpu_time.device_time import HELD_BYTES
from traceview.analysis.registry import RULES
from traceview.analysis.rules.finding import Severity
from traceview.report.model import Report


def codes(report: Report) -> dict[str, Severity]:
    """Severity by code, each code at most once.

    Left out is what all of these traces have: float32 kernels on a V100.
    """
    assert len({finding.code for finding in report.findings}) == len(report.findings)
    severities = {finding.code: finding.severity for finding in report.findings}
    severities.pop("low-precision-unused", None)
    return severities


# Devices


def test_gpus_whose_replicas_were_not_recorded_are_not_unused(tmp_path: Path) -> None:
    SCENARIOS["replicas_reached_on_two"]().write(tmp_path)
    finding = the(traceview.analyze(tmp_path), "unused-gpu")
    assert (finding.severity, finding.loss, finding.confidence) == ("warning", None, "medium")
    assert finding.title == (
        "6 of 8 GPUs have no recorded kernel, though the job has 8 replicas or more"
    )
    assert "takes every visible GPU" not in finding.action
    assert "4.00 GB" in finding.explanation


@pytest.mark.parametrize(("length_ms", "marginal"), [(8.0, False), (7.999, True)])
def test_marginal_gpu(tmp_path: Path, length_ms: float, marginal: bool) -> None:
    trace = new_trace()
    for step in marked_steps(trace):
        step.kernel(0, 2, 42)
        step.kernel(1, 2, 2 + length_ms)
    report = analyzed(tmp_path, trace)
    assert codes(report) == ({"marginal-gpu": "critical"} if marginal else {})
    if marginal:
        finding = the(report, "marginal-gpu")
        assert finding.devices == ("GPU:1",)
        compute, ratio = finding.evidence
        assert compute.value == 4 * ms(length_ms)
        assert ratio.value == pytest.approx(length_ms / 40)
        # While the other computes.
        assert loss_of(finding).gpu_time_ps == 4 * ms(40 - length_ms)


@pytest.mark.parametrize(("role", "marginal"), [("worker", True), ("ps", False)])
def test_marginal_is_judged_among_devices_of_one_role(
    role: str, marginal: bool, tmp_path: Path
) -> None:
    """4 ms of each step beside 40 of a worker: a tenth; a parameter server has other things to do."""
    for host, length_ms in (("vm_worker0", 40), (f"vm_{role}1", 4)):
        trace = CudaTrace(host, start_ns=PROFILE_START_NS)
        for step in marked_steps(trace):
            step.kernel(0, 2, 2 + length_ms)
        trace.write(tmp_path)
    report = traceview.analyze(tmp_path)
    assert report.results.device_time is not None
    assert [row.status for row in report.results.device_time.devices] == (
        # By name of the host, the parameter server comes first.
        ["active", "marginal"] if marginal else ["active", "active"]
    )
    assert ("marginal-gpu" in codes(report)) == marginal


def test_marginal_is_judged_over_the_whole_recording(tmp_path: Path) -> None:
    """In the one step that is looked at the two GPUs compute alike; over all four one is marginal."""
    trace = new_trace()
    for index, step in enumerate(marked_steps(trace)):
        step.kernel(0, 2, 42)
        if index == 0:
            step.kernel(1, 2, 32)
    report = analyzed(tmp_path, trace, steps=slice(0, 1))
    finding = the(report, "marginal-gpu")
    assert finding.title == "GPU:1 does 19% of GPU:0's work"
    assert finding.evidence[0].value == ms(30)


@pytest.mark.parametrize("held", [0, HELD_BYTES - 1, HELD_BYTES])
def test_a_copying_gpu_and_the_memory_it_holds_are_one_finding(tmp_path: Path, held: int) -> None:
    trace = new_trace()
    for step in marked_steps(trace):
        step.kernel(0, 2, 42)
        step.copy(1, "D2H", 2, 3, size=1000)
    if held:
        trace.allocation(1, ms(3), held_bytes=held, peak_bytes=held, changed_bytes=held)
    report = analyzed(tmp_path, trace)
    assert codes(report) == {"unused-gpu": "critical"}
    finding = the(report, "unused-gpu")
    assert finding.title == "GPU:1 only copies data: 1 of 2 GPUs computes nothing"
    assert finding.devices == ("GPU:1",)
    assert loss_of(finding).gpu_time_ratio == 0.5
    metrics = [e.metric for e in finding.evidence]
    assert metrics == ["status", "memory_held_bytes"][: 1 + (held >= HELD_BYTES)]


# Capture


def test_a_host_whose_tracer_failed_does_not_make_its_gpus_unused(tmp_path: Path) -> None:
    """One cause, one finding: nothing is known of the GPUs of host1, so they are not called unused."""
    hosts = [new_trace("host0"), new_trace("host1")]
    for trace in hosts:
        trace.gpu(0)
        trace.allocation(0, 0, held_bytes=2**30, peak_bytes=2**30, changed_bytes=2**30)
        for step in marked_steps(trace):
            if trace.host == "host0":
                step.kernel(0, 2, 42)
    report = analyzed(tmp_path, *hosts)
    assert codes(report) == {"no-gpu-plane": "critical"}
    assert report.capture.quality == "degraded"
    assert report.results.device_time is not None
    assert [row.busy_ps for row in report.results.device_time.devices] == [ms(160), None]


@pytest.mark.parametrize("has_events", [False, True])
def test_cupti_that_does_not_load_is_said(tmp_path: Path, has_events: bool) -> None:
    """TensorFlow 2.21 leaves a plane without lines and this error; other findings would say it again."""
    trace = new_trace()
    trace.thread("tf_gpu_0", 77).add("ExecutorState::Process", 0, ms(1), {"id": 1})
    trace.errors = ["Failed to load libcupti (is it installed and accessible?)"]
    for step in marked_steps(trace):
        if has_events:
            plain_step(step)
    report = analyzed(tmp_path, trace)
    if has_events:
        assert codes(report) == {}
        assert [problem.code for problem in report.capture.problems] == ["profiler-error"]
        return
    assert codes(report) == {"no-gpu-plane": "critical"}
    finding = the(report, "no-gpu-plane")
    assert finding.title == "CUPTI did not load on host0: no GPU event was recorded"
    assert "LD_LIBRARY_PATH" in finding.advice
    assert "nvidia-cuda-cupti" in finding.advice
    assert report.verdict.headline.startswith(finding.title)


def test_a_damaged_host_is_not_a_missing_one(tmp_path: Path) -> None:
    traces = [new_trace(f"host{index}") for index in range(2)]
    for index, trace in enumerate(traces):
        for step in marked_steps(trace):
            plain_step(step)
        cluster = {"role": "worker", "index": index, "sizes": {"worker": 2}}
        write_sidecar(trace.write(tmp_path), {"cluster": cluster})
    (second,) = tmp_path.rglob("host1.xplane.pb")
    second.write_bytes(b"\x00")
    assert codes(analyzed(tmp_path)) == {"damaged-file": "warning"}


def test_a_file_damaged_in_three_places_is_one_finding(tmp_path: Path) -> None:
    trace = new_trace()
    for step in marked_steps(trace):
        for ordinal in range(4):
            step.kernel(ordinal, 2, 42)
    path = trace.write(tmp_path)
    data = bytearray(path.read_bytes())
    for match in list(re.finditer(rb"Stream #20", data))[:3]:
        data[match.start() - 1] = 255
    path.write_bytes(data)
    report = traceview.analyze(traceview.load(tmp_path, salvage=True))
    finding = the(report, "damaged-file")
    assert len(finding.evidence) == 3
    assert finding.title == (
        "The file of host0 is damaged in 3 places: events and whole devices may be lost"
    )
    assert report.capture.quality == "degraded"


@pytest.mark.parametrize(
    ("has_events", "reason"),
    [
        (False, "no op of TensorFlow ended while it was profiled"),
        (True, "there was no GPU, and no op ran inside of a graph on the CPU; what runs outside"),
    ],
)
def test_a_run_without_a_device_says_why(has_events: bool, reason: str, tmp_path: Path) -> None:
    trace = new_trace()
    if has_events:
        trace.thread("python", 7).add("EagerExecute", 0, ms(1), {})
    report = analyzed(tmp_path, trace)
    assert report.capture.quality == ("degraded" if has_events else "unusable")
    assert f"No device was recorded: {reason}" in report.verdict.headline


# Steps


@pytest.mark.parametrize(("count", "few"), [(2, True), (3, False)])
def test_few_steps(tmp_path: Path, count: int, few: bool) -> None:
    trace = new_trace()
    for step in marked_steps(trace, count=count):
        plain_step(step)
    report = analyzed(tmp_path, trace)
    assert codes(report) == ({"few-steps": "info"} if few else {})
    if few:
        finding = the(report, "few-steps")
        assert (finding.evidence[0].value, finding.evidence[0].threshold) == (2, 3)


# All of them


@pytest.mark.parametrize(
    ("other_ms", "severity"), [(30, "critical"), (91, "warning"), (96, "info")]
)
def test_a_wait_that_another_device_hides_saves_little(
    other_ms: float, severity: str, tmp_path: Path
) -> None:
    """GPU:0 waits 70 of 100 ms for input; GPU:1 works so long that the step could be shorter by the rest."""
    trace = new_trace(length_ms=1000)
    for step in marked_steps(trace, period_ms=100, marker_ms=100):
        step.host("Iterator::Prefetch", 0, 70)
        step.kernel(0, 70, 100, launch_ms=69.9)
        step.kernel(1, 100 - other_ms, 100, launch_ms=99.9 - other_ms)
    findings = {row.code: row.severity for row in analyzed(tmp_path, trace).findings}
    assert findings["input-bound"] == severity


def test_a_rule_explains_findings_that_there_are() -> None:
    explained = {code.partition("/")[0] for rule in RULES.values() for code in rule.explains}
    assert explained <= set(RULES)


# Of a damaged file nothing is concluded from what is not there


def salvaged(folder: Path, name: str, lost_bytes: int, *, host: str = "*") -> Report:
    """The report of a scenario, of whose files the last bytes are lost."""
    SCENARIOS[name]().write(folder)
    for file in sorted(folder.rglob(f"{host}.xplane.pb")) if lost_bytes else ():
        file.write_bytes(file.read_bytes()[:-lost_bytes])
    return traceview.analyze(traceview.load(folder, salvage=True))


@pytest.mark.usefixtures("no_terminal")
def test_a_table_of_a_damaged_file_says_so(command: Command, tmp_path: Path) -> None:
    salvaged(tmp_path, "memory_only", 60)
    for name in ("devices", "gaps"):
        done = command("show", name, str(tmp_path), "--salvage")
        assert done.code == 0
        assert done.err.startswith(
            "traceview: damaged, so events and whole devices may be lost: host0: damaged at byte "
        )


@pytest.mark.parametrize("name", ["memory_only", "copy_only"])
@pytest.mark.parametrize(("lost_bytes", "is_lost"), [(0, False), (60, True), (400, True)])
def test_what_may_be_lost_is_not_missing(
    name: str, lost_bytes: int, is_lost: bool, tmp_path: Path
) -> None:
    report = salvaged(tmp_path, name, lost_bytes)
    of_absence = [row.code for row in report.findings if RULES[row.code].is_of_absence]
    assert bool(of_absence) is not is_lost
    assert (report.findings[0].code == "damaged-file") is is_lost
    assert (report.verdict.finding == "damaged-file") is is_lost


def test_the_loss_of_one_host_of_several_is_a_warning(tmp_path: Path) -> None:
    report = salvaged(tmp_path, "two_hosts", 60, host="host1")
    severities = {finding.code: finding.severity for finding in report.findings}
    assert severities["damaged-file"] == "warning"


@pytest.mark.parametrize(
    ("lost_bytes", "severity", "confidence"), [(0, "critical", "high"), (60, "warning", "low")]
)
def test_what_a_damaged_file_shows_is_less_sure(
    lost_bytes: int, severity: str, confidence: str, tmp_path: Path
) -> None:
    """Where nothing is seen, work may be missing."""
    report = salvaged(tmp_path, "replicas_wait_for_input", lost_bytes)
    (finding,) = (finding for finding in report.findings if finding.loss)
    assert (finding.severity, finding.confidence) == (severity, confidence)
    assert finding.confidence_reason.startswith("the damaged file") is bool(lost_bytes)
