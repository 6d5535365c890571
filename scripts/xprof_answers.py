"""Compares the answers of traceview and XProf on generated traces whose truth is known.

    python -m scripts.xprof_answers

prints a Markdown table on cases A to G of scripts/scenarios/peers.py. XProf runs in a process of its own, with a
temporary directory of its own and on a copy of the runs, because it keeps caches in both and logs without end.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

import traceview
from scripts.scenarios.peers import CASES
from traceview.report.model import Report

ROOT: Final = Path(__file__).resolve().parent.parent
PINNED: Final = "2.24.2"
"""The version whose answers docs/viewers.md shows; also in pyproject.toml."""

_PS_PER_MS: Final = 1_000_000_000


class XprofError(Exception):
    """XProf is not installed, is another version, or failed; the message says which."""


@dataclass(frozen=True)
class XprofAnswer:
    """XProf's overview of one run, in milliseconds per step, as it rounds them.

    `conclusion`: its words on input; `idle_ms`: the total of the row IDLE of its table of ops; `advises_16_bit`: it
    recommends 16-bit ops.
    """

    step_ms: float
    compute_ms: float
    input_ms: float
    collectives_ms: float
    device_to_device_ms: float
    other_ms: float
    conclusion: str
    compute_16_bit: str
    advises_16_bit: bool
    device_count: int
    idle_ms: float

    @property
    def verdict(self) -> str:
        """The conclusion without its reasons."""
        found = re.search(r"Your program is (.+?) because", self.conclusion)
        return found[1] if found else self.conclusion


@dataclass(frozen=True)
class Answers:
    """Both answers on one case."""

    report: Report
    xprof: XprofAnswer


def installed() -> str | None:
    """The version of XProf in this environment."""
    try:
        return version("xprof")
    except PackageNotFoundError:
        return None


def answers() -> dict[str, Answers]:
    """Both answers by case; raises `XprofError` unless the pinned XProf is there and runs."""
    found = installed()
    if found is None:
        raise XprofError("XProf is not installed here: pip install 'traceview[xprof]'")
    if found != PINNED:
        raise XprofError(f"XProf {found} is installed; what is known of XProf is of {PINNED}")
    with tempfile.TemporaryDirectory(prefix="traceview-") as name:
        folder = Path(name)
        for case, build in CASES.items():
            for owner in ("traceview", "xprof"):
                build().write(folder / owner / case)
        theirs = _of_xprof(folder)
        return {
            case: Answers(traceview.analyze(folder / "traceview" / case), theirs[case])
            for case in CASES
        }


def _of_xprof(folder: Path) -> dict[str, XprofAnswer]:
    (folder / "tmp").mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "scripts.xprof_answers", "--ask", folder],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(folder / "tmp")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode:
        raise XprofError(f"XProf ended with {done.returncode}:\n{done.stderr[-2000:]}")
    found = json.loads((folder / "answers.json").read_text(encoding="utf-8"))
    return {case: _answer(**pages) for case, pages in found.items()}


def _ask(folder: Path) -> None:
    """Let XProf convert every case below `folder`; its answers go into a file, for it may print."""
    from xprof.convert import raw_to_tool_data

    found = {}
    for case in CASES:
        files = sorted(map(str, (folder / "xprof" / case).rglob("*.xplane.pb")))
        found[case] = {
            page: json.loads(raw_to_tool_data.xspace_to_tool_data(files, page, {})[0])
            for page in ("overview_page", "framework_op_stats")
        }
    (folder / "answers.json").write_text(json.dumps(found), encoding="utf-8")


def _answer(
    overview_page: list[dict[str, Any]], framework_op_stats: list[dict[str, Any]]
) -> XprofAnswer:
    said: dict[str, str] = {}
    for table in overview_page:
        said |= table.get("p") or {}

    def milliseconds(key: str) -> float:
        return float(said[f"{key}_ms_avg"])

    return XprofAnswer(
        step_ms=float(said["steptime_ms_average"]),
        compute_ms=milliseconds("device_compute_time"),
        input_ms=milliseconds("infeed_time"),
        collectives_ms=milliseconds("device_collectives_time"),
        device_to_device_ms=milliseconds("device_to_device_time"),
        other_ms=milliseconds("other_time"),
        conclusion=said["input_conclusion"],
        compute_16_bit=said["device_compute_16bit_percent"],
        advises_16_bit="replace more 32-bit Ops by 16-bit Ops" in said["precision_statement"],
        device_count=int(said["device_core_count"]),
        idle_ms=_idle_ms(framework_op_stats[0]),
    )


def _idle_ms(ops: Mapping[str, Any]) -> float:
    """The self time of the row IDLE of the devices, which XProf gives in microseconds."""
    columns = [column["id"] for column in ops["cols"]]
    rows = [
        dict(zip(columns, (cell["v"] for cell in row["c"]), strict=True)) for row in ops["rows"]
    ]
    (idle,) = (row for row in rows if (row["host_or_device"], row["type"]) == ("Device", "IDLE"))
    return float(idle["total_self_time"]) / 1000


def step_parts(report: Report, device: str) -> dict[str, float]:
    """The states of a device in the first step, in milliseconds; the other steps are the same."""
    assert report.results.steps is not None
    step = report.results.steps.steps[0]
    (states,) = (part.states for part in step.devices if part.device == device)
    return {
        "step": step.duration_ps / _PS_PER_MS,
        **{state: ps / _PS_PER_MS for state, ps in states.items()},
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
        f" idle {(row.idle_ps or 0) / _PS_PER_MS:.1f} ms in the whole window"
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


def _xprof_step(answer: XprofAnswer, *parts: str) -> str:
    named = {
        "compute": answer.compute_ms,
        "input": answer.input_ms,
        "collectives": answer.collectives_ms,
        "device to device": answer.device_to_device_ms,
        "others": answer.other_ms,
    }
    told = ", ".join(f"{part} {named[part]:.1f}" for part in parts)
    return f"step {answer.step_ms:.1f} ms: {told}"


@dataclass(frozen=True)
class _Row:
    """A case in words: what is true of every step of 50 ms, and how both answers are told."""

    truth: str
    ours: Callable[[Report], str]
    theirs: Callable[[XprofAnswer], str]


_ROWS: Final = {
    "A": _Row(
        "copies to GPU:0 take 25 ms, waits for them 3, compute 10; GPU:1 does nothing",
        _copies,
        lambda a: f"{_xprof_step(a, 'compute', 'input', 'others')}; {a.verdict}",
    ),
    "B": _Row(
        "on GPU:0 a peer copy takes 12 ms, an all-reduce 10, compute 10",
        _peer_copies,
        lambda a: _xprof_step(a, "compute", "collectives", "device to device"),
    ),
    "C": _Row(
        "GPU:0 computes 40 ms, GPU:1 only 5",
        _uneven,
        lambda a: f"{_xprof_step(a, 'compute', 'others')}; {a.verdict}",
    ),
    "D": _Row(
        "one of eight GPUs computes, 40 ms",
        _unused,
        lambda a: f"{_xprof_step(a, 'compute', 'others')}; {a.verdict}: the same as C",
    ),
    "E": _Row(
        "two streams compute at once, 45 ms",
        _streams,
        lambda a: f"{_xprof_step(a, 'compute')}; idle {a.idle_ms:.1f} ms in its op table",
    ),
    "F": _Row(
        "all compute is bfloat16 on tensor cores",
        _precision,
        lambda a: (
            f"{a.compute_16_bit} 16-bit" + ("; advises 16-bit ops" if a.advises_16_bit else "")
        ),
    ),
    "G": _Row(
        "the host waits 30 ms for input, then the GPUs compute 10",
        _starved,
        lambda a: f"{_xprof_step(a, 'compute', 'input', 'others')}; {a.verdict}",
    ),
}


def table(found: Mapping[str, Answers]) -> str:
    """Markdown: a row per case."""
    lines = [f"| | in each step of 50 ms | traceview | XProf {PINNED} |", "|---|---|---|---|"]
    for case, row in _ROWS.items():
        both = found[case]
        cells = (f"**{case}**", row.truth, row.ours(both.report), row.theirs(both.xprof))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> int:
    """Print the table; 1 if XProf does not answer."""
    parser = argparse.ArgumentParser(prog="python -m scripts.xprof_answers", description=__doc__)
    parser.add_argument("--ask", type=Path, help=argparse.SUPPRESS)
    folder: Path | None = parser.parse_args().ask
    if folder is not None:
        _ask(folder)
        return 0
    try:
        print(table(answers()))
    except XprofError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
