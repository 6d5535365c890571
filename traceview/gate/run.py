"""Runs a gate: reads the conditions and the baseline, and judges the report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from traceview.baseline.folder import DEFAULT_FOLDER, baseline_called
from traceview.errors import UsageError
from traceview.gate.budget import Budget, budget_in
from traceview.gate.conditions import Change, Condition, condition_of
from traceview.gate.judge import Subject, judged
from traceview.gate.result import GateResult
from traceview.location import Location
from traceview.report.given import report_at
from traceview.report.model import Report
from traceview.store.address import is_remote, location_of

OF_BASELINE: Final = "step_time:+5%"
"""What a gate asks for as well where a baseline is given and no condition is about a change."""


def asked_budget(texts: Sequence[str], file: Location | None, baseline: str | None) -> Budget:
    """The conditions of the command line and of the file together, and the baseline: that of the command line first.

    Raises `UsageError` where nothing is asked for, and what `budget_in` and `condition_of` raise.
    """
    read = budget_in(file) if file is not None else Budget(())
    conditions: tuple[Condition, ...] = (*read.conditions, *map(condition_of, texts))
    baseline = read.baseline if baseline is None else baseline
    if baseline == "":
        raise UsageError("the baseline has an empty name", hint="--baseline NAME, or a path")
    changes = [condition for condition in conditions if isinstance(condition, Change)]
    if baseline and not changes:
        conditions = (*conditions, condition_of(OF_BASELINE))
    if not conditions:
        raise UsageError(
            "nothing is asked for: there is no condition",
            hint="--require 'step_time_ms <= 120', --budget budget.toml or --baseline NAME",
        )
    if changes and not baseline:
        raise UsageError(
            f"condition {changes[0].text!r} needs a baseline",
            hint="--baseline NAME, of traceview baseline save NAME LOGDIR, or a path",
        )
    return Budget(conditions, baseline, read.strict)


def baseline_of(text: str, folder: Path | None) -> Subject:
    """The report of a baseline by its name, or by its path where there is none of this name.

    Raises what `baseline_called` and `report_at` raise.
    """
    path = location_of(text)
    is_name = "/" not in text and "\\" not in text and not is_remote(path)
    if is_name and (folder is not None or not path.exists()):
        known = baseline_called(folder or DEFAULT_FOLDER, text)
        assert known.report is not None  # one that cannot be read is an error
        return Subject(text, known.report)
    return Subject(text, report_at(path))


def gate(
    name: str, report: Report, budget: Budget, baseline: Subject | None, *, strict: bool = False
) -> GateResult:
    """What a budget says of a report; `name`: what was given for it."""
    return judged(
        Subject(name, report), budget.conditions, baseline, strict=strict or budget.strict
    )
