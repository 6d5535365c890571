"""Reads budgets and baselines, and judges a report by them: conditions of a TOML file and of the command line."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from traceview.base.errors import TraceFormatError, TraceNotFoundError, UsageError
from traceview.base.location import Location
from traceview.comparison.baselines import DEFAULT_FOLDER, baseline_called
from traceview.comparison.gate.ci import message
from traceview.comparison.gate.conditions import Condition, condition_of
from traceview.comparison.gate.judge import Subject, judged
from traceview.comparison.gate.result import FAILED, HOLDS, GateResult, headline
from traceview.document import numbers
from traceview.report.given import report_at
from traceview.report.model import Report
from traceview.store.address import is_remote, location_of

_KEYS: Final = ("require", "baseline", "strict")


class Budget(Struct, frozen=True):
    """Conditions, and what else the file says. `baseline`: a name or a path, None where it names none."""

    conditions: tuple[Condition, ...]
    baseline: str | None = None
    strict: bool = False


def budget_in(path: Location) -> Budget:
    """The budget in a file.

    Raises `TraceNotFoundError` where there is no such file, `TraceFormatError` for one that is no TOML, and `UsageError`
    for a key or a condition that does not exist.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise TraceNotFoundError(f"{path}: no such file") from None
    except OSError as error:
        raise TraceNotFoundError(f"{path}: {error.strerror or error}") from error
    try:
        data = msgspec.toml.decode(content)
    except ImportError:
        raise UsageError(
            f"{path}: reading TOML needs Python 3.11 or the package tomli",
            hint="pip install tomli, or give the conditions with --require",
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise TraceFormatError(path, f"not TOML: {error}") from None
    try:
        return _budget(data)
    except UsageError as error:
        raise UsageError(f"{path}: {error.message}", hint=error.hint) from None


def _budget(data: dict[str, Any]) -> Budget:
    for key in data:
        if key not in _KEYS:
            near = get_close_matches(key, _KEYS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"keys: {', '.join(_KEYS)}"
            raise UsageError(f"no key of a budget is called {key}", hint=hint)
    texts = data.get("require", [])
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise UsageError("require is no list of texts", hint='require = ["step_time_ms <= 120"]')
    baseline, strict = data.get("baseline"), data.get("strict", False)
    if baseline is not None and not isinstance(baseline, str):
        raise UsageError("baseline is no text: the name of a baseline, or a path")
    if not isinstance(strict, bool):
        raise UsageError("strict is neither true nor false")
    return Budget(tuple(map(condition_of, texts)), baseline, strict)


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
    changes = [condition for condition in conditions if condition.is_change]
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
            hint="--baseline NAME, of traceview gate LOGDIR --save NAME, or a path",
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


def verdict(
    trace: Path, file: Path | None, texts: Sequence[str]
) -> tuple[Literal["holds", "fails", "unknown"], str]:
    """Whether the window meets its budget, and a sentence on it.

    Raises what reading the budget, its baseline and the trace raises.
    """
    asked = asked_budget(texts, file, None)
    before = baseline_of(asked.baseline, None) if asked.baseline else None
    result = gate(str(trace), report_at(trace), asked, before)
    shown = [
        f"{judgement.condition} ({message(judgement)})"
        for judgement in result.judgements
        if judgement.outcome != "holds"
    ]
    text = f"{headline(result)} {numbers.listed(shown)}".strip()
    if result.exit_code == HOLDS:
        return "holds", text
    return "fails" if result.exit_code == FAILED else "unknown", text
