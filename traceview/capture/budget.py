"""Judges the window of a capture by a budget when it has closed, in the process that trains.

Nothing of the analysis is imported before that: a training that has not reached its window pays nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from traceview.base.errors import BudgetError, TraceviewError, UsageError
from traceview.base.text import shell_path

Budget: TypeAlias = str | PathLike[str] | Sequence[str]
"""The path of a TOML file, or conditions."""

_GATE: Final = "traceview.comparison.gate"


class WindowBudget:
    """A budget, and how to treat a window that does not meet it.

    `budget`: a path, or conditions. `over_budget`: `warn` says so by `say`, `raise` raises `BudgetError`. Raises
    `UsageError` for a file that does not exist; what is in it is read when the window has closed.
    """

    def __init__(self, budget: Budget, over_budget: str, say: Callable[[str], None]) -> None:
        if over_budget not in ("warn", "raise"):
            raise UsageError(f"over_budget must be 'warn' or 'raise', not {over_budget!r}")
        self._file: Path | None = None
        self._conditions: tuple[str, ...] = ()
        if isinstance(budget, (str, PathLike)):
            self._file = Path.cwd() / fspath(budget)
            if not self._file.is_file():
                raise UsageError(
                    f"budget={fspath(budget)!r}: no such file",
                    hint="conditions are given as a list: budget=['step_time_ms <= 120']",
                )
        else:
            self._conditions = tuple(budget)
        self._is_raising = over_budget == "raise"
        self._say = say

    def judge(self, trace: Path) -> None:
        """Judge a trace that was saved. What prevents that is reported, and never ends the training.

        Raises `BudgetError` if the budget does not hold and that was asked for.
        """
        try:
            gate: Any = import_module(_GATE)
            verdict: tuple[Literal["holds", "fails", "unknown"], str] = gate.verdict(
                trace, self._file, self._conditions
            )
        except TraceviewError as error:
            self._say(f"the window was not judged: {error.message}")
            return
        except Exception as error:
            self._say(f"the window was not judged: {error!r}")
            return
        outcome, text = verdict
        if outcome == "fails" and self._is_raising:
            raise BudgetError(text, hint=f"traceview analyze {shell_path(trace.parent)}")
        if outcome != "holds":
            self._say(text)
