"""XProf, asked by `python -m scripts.crosscheck`, sums up kernels as traceview does."""

from __future__ import annotations

from pathlib import Path

import pytest

import traceview
from scripts.crosscheck import ask, kernels_of
from traceview.trace.reading.locate import find_runs


@pytest.mark.xprof
@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "copies"), [("bert-8xV100", 2), ("jax-8xMI300X", 1), ("jax-gemm-1of8", 1)]
)
def test_kernels_of_real_traces(name: str, copies: int, shared_traces: Path) -> None:
    """XProf counts a host again for every copy of its file, and of a time nanoseconds."""
    ours = kernels_of(traceview.load(shared_traces / name))
    (run,) = find_runs(shared_traces / name)
    theirs = ask(run).kernels
    both = ours.keys() & theirs.keys()
    assert len(both) > 4
    for kernel in both:
        assert theirs[kernel].count == copies * ours[kernel].count
        difference = theirs[kernel].total_ps - copies * ours[kernel].total_ps
        assert abs(difference) <= 1000 * theirs[kernel].count
