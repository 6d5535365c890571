"""The tracer levels in force are read from the trace."""

from __future__ import annotations

from pathlib import Path

import pytest

import traceview
from scripts.cuda_trace import CudaTrace
from scripts.scenarios.model import marked_steps, new_trace
from scripts.xspace import XSpace

DEFAULTS = {"host_tracer_level": 2, "device_tracer_level": 1, "python_tracer_level": 0}


def traced(options: bytes | None) -> CudaTrace:
    trace = new_trace()
    for step in marked_steps(trace):
        step.kernel(0, 2, 42)
    if options is not None:
        (environment,) = trace.extra_planes
        environment.stats["profile_options"] = options
    return trace


def levels(trace: CudaTrace, folder: Path) -> dict[str, int] | None:
    trace.write(folder)
    (host,) = traceview.load(folder).hosts
    return host.tracer_levels


def test_a_trace_of_tensorflow_2_21_says_them(fixtures: Path) -> None:
    (host,) = traceview.load(fixtures / "custom-loop-2").hosts
    assert host.tracer_levels == DEFAULTS
    (of_capture,) = traceview.analyze(fixtures / "custom-loop-2").capture.hosts
    assert of_capture.tracer_levels == DEFAULTS


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (b"\x08\x01\x10\x03\x18\x00\x20\x01", (3, 0, 1)),
        (b"\x2a\x02ab\x10\x02", (2, 0, 0)),
        (b"", (0, 0, 0)),
    ],
)
def test_levels_by_field_and_absent_ones_are_0(
    options: bytes, expected: tuple[int, int, int], tmp_path: Path
) -> None:
    assert levels(traced(options), tmp_path) == dict(zip(DEFAULTS, expected, strict=True))


@pytest.mark.parametrize("options", [None, b"\x10", b"\x10\x80\x01", b"\xff\xff"])
def test_no_levels_where_they_are_not_readable(options: bytes | None, tmp_path: Path) -> None:
    assert levels(traced(options), tmp_path) is None


def test_options_are_those_of_the_environment(tmp_path: Path) -> None:
    """A stat of that name elsewhere says nothing."""
    trace = traced(None)
    trace.gpu(0).stats["profile_options"] = b"\x10\x03"
    path = trace.write(tmp_path)
    assert b"profile_options" in XSpace.FromString(path.read_bytes()).SerializeToString()
    assert traceview.load(tmp_path).hosts[0].tracer_levels is None
