"""The report sums up its numbers in a sentence, and says where they come from."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from msgspec import to_builtins
from msgspec.structs import asdict

from scripts.cuda_trace import CudaTrace
from scripts.scenarios import SCENARIOS
from scripts.scenarios.model import marked_steps, ms, new_trace
from tests.analysis.test_step_ops import run_of
from traceview.report.build import analyze
from traceview.report.model import Report


def host_with(*statuses: str, host: str = "host0") -> CudaTrace:
    """A host with one GPU of each status, in that order."""
    trace = new_trace(host)
    steps = marked_steps(trace)
    for ordinal, status in enumerate(statuses):
        trace.gpu(ordinal)
        for step in steps:
            if status in ("active", "marginal"):
                step.kernel(ordinal, 2, 42 if status == "active" else 3)
            elif status == "copy_only":
                step.copy(ordinal, "H2D", 2, 3, size=10)
        if status == "memory_only":
            trace.allocation(ordinal, ms(1), held_bytes=10, peak_bytes=10, changed_bytes=10)
    return trace


def analyzed(folder: Path, *traces: CudaTrace) -> Report:
    for trace in traces:
        trace.write(folder)
    return analyze(folder)


@pytest.mark.parametrize(
    ("statuses", "headline"),
    [
        (["empty"], "1 device visible, none with a recorded event."),
        (["empty", "memory_only"], "2 devices visible, none with a recorded event."),
    ],
)
def test_a_run_without_a_recorded_event_says_so(
    statuses: list[str], headline: str, tmp_path: Path
) -> None:
    report = analyzed(tmp_path, host_with(*statuses))
    assert report.capture.quality == "unusable"
    assert report.results.device_time is not None
    assert [row.status for row in report.results.device_time.devices] == statuses
    assert report.verdict.headline in (headline, "The GPU planes of host0 hold no event.")


def test_a_straggler_explains_that_others_compute_less(tmp_path: Path) -> None:
    """Replica 0 computes 2 ms and its gradients beside 32 of replica 1: it has no more to do."""
    ops = {"model/MatMul:MatMul": (2.0, 3.0), "gradient_tape/model/MatMul:MatMul": (3.0, 4.0)}
    more = {f"replica_1/{op}": span for op, span in ops.items()}
    run_of(ops, more | {"replica_1/model/Conv2D:Conv2D": (4.0, 34.0)}).write(tmp_path)
    report = analyze(tmp_path)
    assert report.results.device_time is not None
    statuses = [row.status for row in report.results.device_time.devices]
    assert statuses == ["marginal", "active"]
    assert "straggler-gpu" in {finding.code for finding in report.findings}


def test_source_names_every_file(tmp_path: Path) -> None:
    SCENARIOS["plain"]().write(tmp_path, "older")
    first, copy = SCENARIOS["duplicate_files"]().write(tmp_path, "run1")
    report = analyze(tmp_path)
    digest = hashlib.sha256(first.read_bytes()).hexdigest()
    assert (report.source.logdir, report.source.run) == (str(tmp_path), "run1")
    assert report.source.other_runs == ("older",)
    assert [asdict(file) for file in report.source.files] == [
        {
            "name": path.name,
            "host": path.name.removesuffix(".xplane.pb"),
            "bytes": path.stat().st_size,
            "sha256": digest,
            "event_count": count,
            "duplicate_of": of,
        }
        for path, count, of in ((first, 20, None), (copy, 0, "host0.xplane.pb"))
    ]


@pytest.mark.parametrize("name", ["hidden_transfers", "no_gpu_plane", "two_hosts", "memory_only"])
def test_a_report_is_plain_data_and_the_same_every_time(name: str, tmp_path: Path) -> None:
    SCENARIOS[name]().write(tmp_path)
    first, again = (json.dumps(to_builtins(analyze(tmp_path))) for _ in range(2))
    assert first == again
