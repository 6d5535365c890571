"""Whatever a run holds, it is refused in one line or everything is made of it, and what is written is read again."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec.structs import replace

from scripts.cuda_trace import MS, U64, CudaTrace
from scripts.mutated_runs import check_saved, follow, show, sources_in, write_damaged
from scripts.scenarios import SCENARIOS
from scripts.scenarios.model import Step, marked_steps, new_trace
from tests.command import Command
from tests.sidecars import write_sidecar
from traceview.base.errors import TraceFormatError, UsageError
from traceview.report.build import analyze
from traceview.report.model import Report
from traceview.report.redaction import redacted
from traceview.trace.model import WINDOW_KINDS, WindowKind
from traceview.trace.reading.load import load

SEEDS: Final = range(40)
"""Half a second each; `python -m scripts.mutated_runs` tries others."""


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return sources_in(tmp_path_factory.mktemp("sources"))


def test_damaged_runs(sources: list[Path], tmp_path: Path) -> None:
    made_count = 0
    for seed in SEEDS:
        choice = random.Random(seed)
        logdir = write_damaged(sources, tmp_path, choice)
        try:
            made_count += follow(logdir, choice)
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error
    assert made_count > len(SEEDS) // 2


@pytest.mark.parametrize("window", WINDOW_KINDS)
def test_what_is_written_of_any_window_is_read(window: WindowKind, tmp_path: Path) -> None:
    """Copies of any size and length, and scenarios of every topic, with names and without."""
    trace = two_gpus()
    for size, place in ((2**62, 0), (2**63 - 1, 1), (10**15, 2)):
        for length_ps in (1, 1000):
            start_ps = place * 50 * MS + length_ps
            trace.copy(0, "h2d", start_ps, start_ps + length_ps, size=size)
    trace.write(tmp_path / "copies")
    for name in list(SCENARIOS)[::20]:
        SCENARIOS[name]().write(tmp_path / name)
    for logdir in sorted(tmp_path.iterdir()):
        try:
            report = analyze(load(logdir, salvage=True), window=window, lanes=True)
        except UsageError:
            continue
        for written in (report, redacted(report)):
            check_saved(written, tmp_path / f"{logdir.name}.json")


def test_a_lone_surrogate_in_a_sidecar(tmp_path: Path) -> None:
    """JSON may hold one, and no text can be written that does."""
    written = two_gpus().write(tmp_path / "logs")
    write_sidecar(written, {"strategy": {"class": "a\ud800", "found_by": "memory"}})
    assert follow(tmp_path / "logs", random.Random(0))
    check_saved(analyze(load(tmp_path / "logs")), tmp_path / "report.json")


def test_the_longest_of_two_hosts_is_no_step_that_counts(tmp_path: Path) -> None:
    """One host has traced a function in its steps."""
    for host in ("host0", "host1"):
        trace = new_trace(host)
        for step in marked_steps(trace):
            step.kernel(0, 1, 40)
        trace.write(tmp_path / "logs")
    report = analyze(load(tmp_path / "logs"))
    steps = report.results.steps
    assert steps is not None
    rows = tuple(
        replace(row, used=False, duration_ps=row.duration_ps + MS) if row.host == "host1" else row
        for row in steps.steps
    )
    show(replace(report, results=replace(report.results, steps=replace(steps, steps=rows))))


def test_a_gpu_that_hardly_computes_on_a_host_without_steps(tmp_path: Path) -> None:
    """In the window of the steps its host has none, so that the GPU is in no row of the ledger."""
    two_gpus(second_in=9).write(tmp_path / "logs")
    other = new_trace("host1")
    Step(other, 0).kernel(0, 1, 1.5)
    other.write(tmp_path / "logs")
    report = analyze(load(tmp_path / "logs"), window="steps")
    assert report.results.device_time is not None
    assert "marginal" in {row.status for row in report.results.device_time.devices}
    check_saved(report, tmp_path / "report.json")


def test_a_copy_faster_than_any_number_has_no_rate(tmp_path: Path) -> None:
    trace = two_gpus(second_in=9)
    trace.copy(0, "h2d", 41 * MS, 41 * MS + 1, size=10**9)
    report = everything_of(trace, tmp_path)
    assert report.results.device_time is not None
    activity = report.results.device_time.devices[0].activity
    assert activity is not None
    assert activity["h2d"].bytes_per_second is None


@pytest.mark.shared
def test_the_broken_traces(shared_traces: Path, tmp_path: Path) -> None:
    made = []
    for source in sorted((shared_traces / "broken").iterdir()):
        shutil.copytree(source, tmp_path / source.name)
        if follow(tmp_path / source.name, random.Random(0)):
            made.append(source.name)
    assert "host-plane-missing" in made


def everything_of(trace: CudaTrace, tmp_path: Path) -> Report:
    """The report of a trace, after all that is made of it."""
    trace.write(tmp_path / "logs")
    assert follow(tmp_path / "logs", random.Random(0))
    report = analyze(load(tmp_path / "logs"), lanes=True)
    check_saved(report, tmp_path / "report.json")
    show(report)
    return report


def two_gpus(step_count: int = 9, second_in: int = 3) -> CudaTrace:
    """Two GPUs that compute, the second one in some of the steps only."""
    trace = new_trace(length_ms=60.0 * step_count)
    for number, step in enumerate(marked_steps(trace, count=step_count)):
        step.kernel(0, 1, 40)
        if number < second_in:
            step.kernel(1, 1, 40)
    return trace


def test_a_device_that_computes_in_fewer_than_half_of_the_steps(
    command: Command, tmp_path: Path
) -> None:
    everything_of(two_gpus(), tmp_path)
    assert command("analyze", str(tmp_path / "logs"), "--full").code == 0


def test_steps_that_only_a_host_without_gpus_has(command: Command, tmp_path: Path) -> None:
    two_gpus(step_count=2).write(tmp_path / "logs")
    other = new_trace("host1")
    for step in marked_steps(other, count=5):
        step.host("work", 1, 20)
    other.write(tmp_path / "logs")
    for name in ("analyze --full", "analyze --format json", "report", "export", "export --to csv"):
        words = name.split()
        place = [] if words[0] == "analyze" else ["-o", str(tmp_path / "".join(words))]
        done = command(*words, str(tmp_path / "logs"), "--steps", "2:4", *place)
        assert done.code == 0, done.err


def test_two_hosts_one_without_a_step(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    for host, has_steps in (("host0", True), ("host1", False)):
        trace = new_trace(host)
        for step in marked_steps(trace, count=3) if has_steps else [Step(trace, 0)]:
            for ordinal in range(2):
                step.kernel(ordinal, 1, 20)
                step.kernel(ordinal, 20, 30, name="ncclDevKernel_AllReduce_Sum_f32_RING_LL")
        trace.write(folder)
    report = analyze(load(folder), lanes=True)
    check_saved(report, tmp_path / "report.json")
    collectives = report.results.collectives
    assert collectives is not None
    assert collectives.last_counts.keys() == {f"host{h}/GPU:{g}" for h in (0, 1) for g in (0, 1)}
    show(report)


@pytest.mark.parametrize("value", [-1, 2**62, U64(2**64 - 1), U64(2**63)])
@pytest.mark.parametrize("stat", ["clock_rate", "core_count", "memory_size", "compute_cap_major"])
def test_a_gpu_with_impossible_properties(stat: str, value: Any, tmp_path: Path) -> None:
    trace = two_gpus(second_in=9)
    trace.gpus[0].stats[stat] = value
    report = everything_of(trace, tmp_path)
    assert report.results.balance is not None


@pytest.mark.parametrize("start_ns", [2**63, 2**64 - 1, 0])
def test_a_profile_that_starts_at_an_impossible_time(start_ns: int, tmp_path: Path) -> None:
    trace = two_gpus(second_in=9)
    (environment,) = trace.extra_planes
    environment.stats["profile_start_time"] = U64(start_ns)
    report = everything_of(trace, tmp_path)
    assert report.capture.hosts[0].profile_start_ns == (start_ns or 0 if start_ns < 2**62 else None)


@pytest.mark.parametrize("number", [-(2**63), -1, 2**62, 2**63 - 1])
def test_a_step_with_an_impossible_number(number: int, tmp_path: Path) -> None:
    trace = new_trace(length_ms=500)
    for place in range(4):
        trace.marker(number if place == 0 else place, place * 50 * MS, (place * 50 + 49) * MS)
        Step(trace, place * 50).kernel(0, 1, 40)
        Step(trace, place * 50).kernel(1, 1, 40)
    report = everything_of(trace, tmp_path)
    assert report.results.steps is not None


@pytest.mark.parametrize(("held", "available"), [(2**62, 2**62), (2**63 - 1, 2**63 - 1), (-5, 9)])
def test_memory_beyond_64_bits(held: int, available: int, tmp_path: Path) -> None:
    trace = two_gpus(second_in=9)
    trace.allocation(
        0, MS, held_bytes=held, peak_bytes=held, changed_bytes=1, capacity_bytes=held + available
    )
    everything_of(trace, tmp_path)


def kernels_of(length_ps: int) -> CudaTrace:
    trace = two_gpus(second_in=9)
    for place in range(40):
        trace.kernel(
            0,
            place * MS,
            place * MS + length_ps,
            op=f"gradient_tape/model/dense_{place}/MatMul:MatMul",
        )
    return trace


@pytest.mark.parametrize("length_ps", [2**57, 2**56])
def test_kernels_that_last_for_days_together(length_ps: int, tmp_path: Path) -> None:
    kernels_of(length_ps).write(tmp_path / "logs")
    with pytest.raises(TraceFormatError, match="days or more in total"):
        load(tmp_path / "logs", salvage=True)


def test_kernels_that_last_for_days(tmp_path: Path) -> None:
    kernels_of(2**61).write(tmp_path / "logs")
    assert follow(tmp_path / "logs", random.Random(0))
    loaded = load(tmp_path / "logs", salvage=True)
    assert loaded.problems[0].code == "damaged-file"
    check_saved(analyze(loaded, lanes=True), tmp_path / "report.json")


def test_more_devices_than_a_run_can_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("traceview.trace.reading.part.MOST_DEVICES", 5)
    trace = new_trace()
    for ordinal in range(9):
        trace.gpu(ordinal)
    for step in marked_steps(trace, count=2):
        step.kernel(0, 1, 20)
    trace.write(tmp_path / "logs")
    for salvage in (False, True):
        with pytest.raises(TraceFormatError, match="more than 32,768 devices"):
            load(tmp_path / "logs", salvage=salvage)


def test_a_sidecar_with_impossible_numbers(tmp_path: Path) -> None:
    (path,) = [two_gpus(second_in=9).write(tmp_path / "logs")]
    write_sidecar(
        path,
        {
            "batch": {"global": 2**53, "per_replica": 2**53},
            "strategy": {"class": "MirroredStrategy", "found_by": "input", "replicas": 2**53},
            "training": {"parameters": 2**53, "gradient_bytes": 2**53},
            "window": {"edge_steps": [2**53]},
        },
    )
    loaded = load(tmp_path / "logs")
    assert loaded.problems == ()
    assert follow(tmp_path / "logs", random.Random(0))
