"""Compares the answers of traceview and XProf on generated traces whose truth is known.

    python -m scripts.xprof_answers

prints a Markdown table on cases A to G of scripts/scenarios/peers.py. XProf is asked as by `scripts.crosscheck`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import traceview
from scripts.crosscheck.answer import Answer
from scripts.crosscheck.recount import KNOWN_VERSION
from scripts.crosscheck.xprof import ask, installed_version
from scripts.scenarios.peers import CASES
from traceview.base.errors import TraceviewError, UsageError
from traceview.base.units import PS_PER_MS
from traceview.report.model import Report
from traceview.trace.reading.locate import choose_run, find_runs


@dataclass(frozen=True)
class Answers:
    """Both answers on one case."""

    report: Report
    xprof: Answer


def answers() -> dict[str, Answers]:
    """Both answers by case; raises `UsageError` unless the known XProf is there, `ViewerError` if it fails."""
    version = installed_version()
    if version != KNOWN_VERSION:
        raise UsageError(
            f"XProf {version} is installed; what is known of XProf is of {KNOWN_VERSION}"
        )
    with tempfile.TemporaryDirectory(prefix="traceview-") as name:
        found = {}
        for case, build in CASES.items():
            folder = Path(name) / case
            build().write(folder)
            theirs = ask(choose_run(find_runs(folder), None)[0]).answer
            found[case] = Answers(traceview.analyze(folder), theirs)
        return found


def step_parts(report: Report, device: str) -> dict[str, float]:
    """The states of a device in the first step, in milliseconds; the other steps are the same."""
    assert report.results.steps is not None
    step = report.results.steps.steps[0]
    (states,) = (part.states for part in step.devices if part.device == device)
    return {
        "step": step.duration_ps / PS_PER_MS,
        **{state: ps / PS_PER_MS for state, ps in states.items()},
    }


def severity(report: Report, code: str) -> str | None:
    """How severe the finding of a code is; None where there is none."""
    return next((found.severity for found in report.findings if found.code == code), None)


def statuses(report: Report) -> list[str | None]:
    """The status of every device, in the order of the device list."""
    assert report.results.device_time is not None
    return [row.status for row in report.results.device_time.devices]


def _copies(report: Report) -> str:
    parts = step_parts(report, "GPU:0")
    return (
        f"step {parts['step']:.1f} ms: compute {parts['compute']:.1f}, HtoD copies and waits for"
        f" them {parts['h2d']:.1f}; `h2d-exposed` {severity(report, 'h2d-exposed')};"
        f" GPU:1 {statuses(report)[1]}"
    )


def _peer_copies(report: Report) -> str:
    parts = step_parts(report, "GPU:0")
    return (
        f"step {parts['step']:.1f} ms: compute {parts['compute']:.1f}, communication"
        f" {parts['communication']:.1f}, DtoD copies {parts['d2d']:.1f}"
    )


def _uneven(report: Report) -> str:
    computed = [step_parts(report, f"GPU:{ordinal}")["compute"] for ordinal in (0, 1)]
    return (
        f"step {step_parts(report, 'GPU:0')['step']:.1f} ms: compute {computed[0]:.1f} and"
        f" {computed[1]:.1f}; GPU:1 {statuses(report)[1]}"
    )


def _unused(report: Report) -> str:
    found = statuses(report)
    return (
        f"{found.count('empty')} of {len(found)} GPUs empty;"
        f" `unused-gpu` {severity(report, 'unused-gpu')}"
    )


def _streams(report: Report) -> str:
    assert report.results.device_time is not None
    (row,) = report.results.device_time.devices
    return (
        f"step {step_parts(report, 'GPU:0')['step']:.1f} ms: compute"
        f" {step_parts(report, 'GPU:0')['compute']:.1f};"
        f" idle {(row.idle_ps or 0) / PS_PER_MS:.1f} ms in the whole window"
    )


def _precision(report: Report) -> str:
    assert report.results.precision is not None
    (row,) = report.results.precision.devices
    bf16 = row.precision_ps["bf16"] / row.compute_ps
    return f"{bf16:.0%} of compute bf16, {row.tensor_core_ratio:.0%} on tensor cores"


def _starved(report: Report) -> str:
    parts = step_parts(report, "GPU:0")
    return (
        f"step {parts['step']:.1f} ms: compute {parts['compute']:.1f}, input"
        f" {parts['input']:.1f}; `input-bound` {severity(report, 'input-bound')}"
    )


def _xprof_step(answer: Answer, *parts: str) -> str:
    assert answer.steps
    step = answer.steps[0]
    named = {
        "compute": step.compute_ps,
        "input": step.input_ps,
        "collectives": step.collective_ps,
        "device to device": step.d2d_ps,
        "others": step.other_ps,
    }
    told = ", ".join(f"{part} {named[part] / PS_PER_MS:.1f}" for part in parts)
    return f"step {step.duration_ps / PS_PER_MS:.1f} ms: {told}"


def _verdict(answer: Answer) -> str:
    return {"none": "NOT", "potential": "POTENTIALLY"}[answer.verdict or ""] + " input-bound"


@dataclass(frozen=True)
class _Row:
    """A case in words: what is true of every step of 50 ms, and how both answers are told."""

    truth: str
    ours: Callable[[Report], str]
    theirs: Callable[[Answer], str]


_ROWS: Final = {
    "A": _Row(
        "copies to GPU:0 take 25 ms, waits for them 3, compute 10; GPU:1 does nothing",
        _copies,
        lambda a: f"{_xprof_step(a, 'compute', 'input', 'others')}; {_verdict(a)}",
    ),
    "B": _Row(
        "on GPU:0 a peer copy takes 12 ms, an all-reduce 10, compute 10",
        _peer_copies,
        lambda a: _xprof_step(a, "compute", "collectives", "device to device"),
    ),
    "C": _Row(
        "GPU:0 computes 40 ms, GPU:1 only 5",
        _uneven,
        lambda a: f"{_xprof_step(a, 'compute', 'others')}; {_verdict(a)}",
    ),
    "D": _Row(
        "one of eight GPUs computes, 40 ms",
        _unused,
        lambda a: f"{_xprof_step(a, 'compute', 'others')}; {_verdict(a)}: the same as C",
    ),
    "E": _Row(
        "two streams compute at once, 45 ms",
        _streams,
        lambda a: (
            f"{_xprof_step(a, 'compute')}; idle {(a.idle_ps or 0) / PS_PER_MS:.1f} ms in its op table"
        ),
    ),
    "F": _Row(
        "all compute is bfloat16 on tensor cores",
        _precision,
        lambda a: (
            f"{a.half_ratio:.1%} 16-bit" + ("; advises 16-bit ops" if a.advises_16_bit else "")
        ),
    ),
    "G": _Row(
        "the host waits 30 ms for input, then the GPUs compute 10",
        _starved,
        lambda a: f"{_xprof_step(a, 'compute', 'input', 'others')}; {_verdict(a)}",
    ),
}


def table(found: Mapping[str, Answers]) -> str:
    """Markdown: a row per case."""
    lines = [
        f"| | in each step of 50 ms | traceview | XProf {KNOWN_VERSION} |",
        "|---|---|---|---|",
    ]
    for case, row in _ROWS.items():
        both = found[case]
        cells = (f"**{case}**", row.truth, row.ours(both.report), row.theirs(both.xprof))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> int:
    """Print the table; 1 if XProf does not answer."""
    argparse.ArgumentParser(
        prog="python -m scripts.xprof_answers", description=__doc__
    ).parse_args()
    try:
        print(table(answers()))
    except TraceviewError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
