"""`python -m scripts.crosscheck` asks XProf about a copy; its answers to known cases are those of docs/viewers.md."""

from __future__ import annotations

from pathlib import Path

import pytest

import traceview
from scripts.crosscheck import Answer, ask, kernels_of
from scripts.scenarios.peers import CASES
from traceview.base.units import PS_PER_MS
from traceview.trace.reading.locate import find_runs


def answer_of(logdir: Path) -> Answer:
    (run,) = find_runs(logdir)
    return ask(run)


KNOWN = {
    "A": (38, {"compute": 35}, "potential"),
    "B": (38, {"compute": 22, "collectives": 10}, "potential"),
    "C": (40, {"compute": 40}, "none"),
    "D": (40, {"compute": 40}, "none"),
    "E": (45, {"compute": 45}, "none"),
    "F": (40, {"compute": 40}, "none"),
    "G": (10, {"compute": 10}, "none"),
}
"""XProf's step in milliseconds, what of its parts is not 0, and its verdict on the input."""


@pytest.mark.xprof
@pytest.mark.parametrize("name", CASES)
def test_the_known_cases(name: str, tmp_path: Path) -> None:
    CASES[name]().write(tmp_path)
    answer = answer_of(tmp_path)
    step_ms, parts_ms, verdict = KNOWN[name]
    assert (answer.step_count, answer.step_ps) == (4, step_ms * PS_PER_MS)
    parts = {part: ps // PS_PER_MS for part, ps in answer.parts_ps.items() if ps}
    assert (parts, answer.verdict, answer.half_ratio) == (parts_ms, verdict, 0)
    if name == "E":
        assert answer.idle_ps == 0


@pytest.mark.xprof
@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "copies"), [("bert-8xV100", 2), ("jax-8xMI300X", 1), ("jax-gemm-1of8", 1)]
)
def test_kernels_of_real_traces(name: str, copies: int, shared_traces: Path) -> None:
    """XProf counts a host again for every copy of its file, and of a time nanoseconds."""
    ours = kernels_of(traceview.load(shared_traces / name))
    theirs = answer_of(shared_traces / name).kernels
    both = ours.keys() & theirs.keys()
    assert len(both) > 4
    for kernel in both:
        assert theirs[kernel].count == copies * ours[kernel].count
        difference = theirs[kernel].total_ps - copies * ours[kernel].total_ps
        assert abs(difference) <= 1000 * theirs[kernel].count
