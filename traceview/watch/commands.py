"""Runs the user's commands on findings. What a trace says reaches them as variables, never as part of a command."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final

from msgspec import Struct

from traceview.base.units import PS_PER_S
from traceview.document.sanitize import encodable, sanitize
from traceview.watch.facts import FindingFacts
from traceview.watch.metrics import NewestRun

PATIENCE_S: Final = 60
"""A command that takes longer is ended, so that the watch goes on."""


_STANDARD_ERROR: Final = 2


class OnFinding(Struct, frozen=True):
    """The shell command to run when a run has this finding."""

    code: str
    command: str


def variables(run: NewestRun, finding: FindingFacts) -> Mapping[str, str]:
    """What a command is given: texts on one line, without control characters; empty where nothing is known."""
    facts, change = run.facts, run.change
    known = {
        "JOB": run.job,
        "LOGDIR": run.logdir,
        "RUN": facts.run,
        "FINDING": finding.code,
        "SEVERITY": finding.severity,
        "TITLE": finding.title,
        "GPU_TIME_RATIO": _number(finding.gpu_time_ratio),
        "STATUS": facts.status,
        "HEADLINE": facts.headline,
        "STEP_SECONDS": _number(None if facts.step_ps is None else facts.step_ps / PS_PER_S),
        "STEP_CHANGE_RATIO": _number(change.ratio if change else None),
        "STEP_NOISE_RATIO": _number(change.noise_ratio if change else None),
        "COMPUTE_RATIO": _number(facts.compute_ratio),
    }
    return {f"TRACEVIEW_{name}": encodable(sanitize(text)) for name, text in known.items()}


def _number(value: float | None) -> str:
    return "" if value is None else repr(value)


def run_commands(commands: tuple[OnFinding, ...], run: NewestRun) -> Iterator[str]:
    """Run those for the findings of a run, one after another; yields what went wrong."""
    findings = {finding.code: finding for finding in run.facts.findings}
    for command in commands:
        if command.code in findings:
            wrong = _run(command.command, variables(run, findings[command.code]))
            if wrong:
                yield f"--on-finding {command.code}: the command {wrong}"


def _run(command: str, known: Mapping[str, str]) -> str | None:
    """Run a command; why it failed, if it did. What it prints goes to standard error, for the lines of runs are data."""
    process = subprocess.Popen(
        command,
        shell=True,
        stdin=subprocess.DEVNULL,
        stdout=_STANDARD_ERROR,
        env={**os.environ, **known},
        # Everything that it starts can be ended with it.
        start_new_session=True,
    )
    try:
        code = process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        return f"took longer than {PATIENCE_S} s and was ended"
    finally:
        if process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if code < 0:
        return f"was ended by signal {-code}"
    return f"ended with exit code {code}" if code else None
