"""Counters that the trace holds are joined with steps and states as samples of NVML are, and a recount of its messages agrees."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import traceview
from scripts.cuda_trace import V100_STATS, CudaTrace
from scripts.scenarios.model import marked_steps, new_trace
from scripts.xspace import XSpace
from traceview.analysis.machine.nvml import Nvml
from traceview.base.units import PS_PER_S

MS = 10**9
STEPS, PERIOD_MS = 4, 300
"""1.2 s, from which on there is energy."""

READ, WRITE = "DRAM Read Bandwidth (%)", "DRAM Write Bandwidth (%)"
STAT_OF = {
    "SMs Active (%)": "TPC.TriageCompute.sm__cycles_active.avg.pct_of_peak_sustained_elapsed",
    READ: "dramc__read_throughput.avg.pct_of_peak_sustained_elapsed",
    WRITE: "dramc__write_throughput.avg.pct_of_peak_sustained_elapsed",
    "NVLink RX Bandwidth (%)": "nvlrx__bytes.avg.pct_of_peak_sustained_elapsed",
    "NVLink TX Bandwidth (%)": "nvltx__bytes.avg.pct_of_peak_sustained_elapsed",
}


def sampled(
    folder: Path, value: Callable[[str, int], float | None], *, every_ms: int = 7, gpus: int = 2
) -> Path:
    """Steps of which a kernel takes the second third; `value`: of a counter in a number of a sample, None for none."""
    trace = new_trace(length_ms=STEPS * PERIOD_MS)
    for step in marked_steps(trace, count=STEPS, period_ms=PERIOD_MS, marker_ms=PERIOD_MS - 50):
        for gpu in range(gpus):
            step.kernel(gpu, 100, 200)
    for gpu in range(gpus):
        add_counters(trace, gpu, value, every_ms)
    return trace.write(folder)


def add_counters(
    trace: CudaTrace, gpu: int, value: Callable[[str, int], float | None], every_ms: int
) -> None:
    line = trace.gpu(gpu).line(99, "_counters_", stamp_ns=0)
    names = ("power_mw", "gpu_temp_c", "sm_clock_mhz", "memory_clock_mhz", *STAT_OF)
    for number in range(STEPS * PERIOD_MS // every_ms):
        at_ps = number * every_ms * MS + 1
        for name in names:
            found = value(name, number)
            if found is not None:
                line.add(name, at_ps, at_ps, {STAT_OF.get(name, name): found})


def result(folder: Path) -> Nvml:
    found = traceview.analyze(folder).results.outside_view
    assert found is not None
    return found


def test_a_recount_of_the_messages_agrees(tmp_path: Path) -> None:
    rng = random.Random(7)

    def value(name: str, _: int) -> float | None:
        if rng.random() < 0.1:
            return None
        most = {"power_mw": 300_000, "gpu_temp_c": 90, "sm_clock_mhz": 1530}.get(name, 70)
        return float(rng.randrange(most // 2, most))

    path = sampled(tmp_path, value)
    space = XSpace()
    space.ParseFromString(path.read_bytes())
    rows = result(tmp_path).devices
    assert len(rows) == 2
    for row in rows:
        expected = recount(space, row.device)
        found = {key: getattr(row, key) for key in expected}
        assert found == pytest.approx(expected)
        assert row.sampled_step_count == STEPS
        assert row.throttled_step_count in range(1, STEPS + 1)


def recount(space: Any, device: str) -> dict[str, float | None]:
    """What the report has to say, from the events of the messages one by one."""
    host = next(plane for plane in space.planes if plane.name == b"/host:CPU")
    plane = next(plane for plane in space.planes if plane.name == f"/device:{device}".encode())
    report = steps_of(host)
    kernels = [(at, at + length) for name, at, length, _ in events(plane) if length]
    samples = [(name, at, value) for name, at, length, value in events(plane) if not length]

    def step_of(at: int) -> int | None:
        return next((n for n, (begin, end) in enumerate(report) if begin <= at < end), None)

    def computes(at: int) -> bool:
        return step_of(at) is not None and any(begin <= at < end for begin, end in kernels)

    def of(wanted: str) -> list[tuple[int, float]]:
        return [(at, value) for name, at, value in samples if name == wanted]

    def mean(values: list[float]) -> float:
        return sum(values) / len(values)

    written = dict(of(WRITE))
    dram = [(read + written[at]) / 100 for at, read in of(READ) if at in written and computes(at)]
    clocks = [value * 1e6 for at, value in of("sm_clock_mhz") if computes(at)]
    highest = V100_STATS["clock_rate"]
    assert isinstance(highest, int)
    full = 0.97 * highest * 1000
    lowered = {step_of(at) for at, v in of("sm_clock_mhz") if computes(at) and v * 1e6 < full}
    mean_s = mean([float(end - begin) for begin, end in report]) / PS_PER_S
    links = [
        mean(
            [
                value / 100
                for at, value in of(f"NVLink {way} Bandwidth (%)")
                if step_of(at) is not None
            ]
        )
        for way in ("RX", "TX")
    ]
    return {
        "power_watts": mean([value / 1000 for _, value in of("power_mw")]),
        "temperature_celsius": max(value for _, value in of("gpu_temp_c")),
        "joules_per_step": mean_s
        * mean([value / 1000 for at, value in of("power_mw") if step_of(at) is not None]),
        "throttled_ratio": mean([float(clock < full) for clock in clocks]),
        "throttled_step_count": len(lowered),
        "sm_active_ratio": mean([v / 100 for at, v in of("SMs Active (%)") if computes(at)]),
        "dram_ratio": mean([min(value, 1) for value in dram]),
        "nvlink_ratio": max(links),
    }


def steps_of(host: Any) -> list[tuple[int, int]]:
    """From marker to marker; the last ends with its marker."""
    markers = sorted((at, at + length) for name, at, length, _ in events(host) if name == "train")
    starts = [at for at, _ in markers]
    return list(zip(starts, [*starts[1:], markers[-1][1]], strict=True))


def events(plane: Any) -> Iterator[tuple[str, int, int, float]]:
    """Name, start, length and the first number of each event."""
    for line in plane.lines:
        for event in line.events:
            at = line.timestamp_ns * 1000 + event.offset_ps
            value = event.stats[0].double_value if event.stats else 0.0
            name = plane.event_metadata[event.metadata_id].name.decode()
            yield name, at, event.duration_ps, value


@pytest.mark.parametrize("clock", [1100.0, 1530.0])
def test_clocks_that_are_lower_while_it_computes(clock: float, tmp_path: Path) -> None:
    """An idle GPU lowers its clock, which is no throttling."""

    def value(name: str, number: int) -> float | None:
        in_kernel = 100 <= 7 * number % PERIOD_MS < 205
        return (clock if in_kernel else 300.0) if name == "sm_clock_mhz" else None

    sampled(tmp_path, value)
    report = traceview.analyze(tmp_path)
    found = [each for each in report.findings if each.code == "gpu-throttled"]
    assert len(found) == (clock < 1500)
    for finding in found:
        assert finding.title == "Both GPUs compute 100% of the time below the highest clock"
        assert finding.confidence == "medium"


def test_hostile_counters_are_left_out(tmp_path: Path) -> None:
    values = iter([float("nan"), float("inf"), -5.0, 1e300, 250_000.0] * 1000)
    sampled(tmp_path, lambda name, _: next(values) if name == "power_mw" else None)
    for row in result(tmp_path).devices:
        assert row.power_watts == pytest.approx(250)
