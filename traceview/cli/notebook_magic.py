"""Defines `%%traceview` for notebooks: the cell runs under a capture, and its report is shown below it."""

from __future__ import annotations

import ast
import os
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import traceview
from traceview.base.errors import CaptureError, TraceviewError
from traceview.capture.record.capture import Capture
from traceview.capture.record.outcome import End
from traceview.capture.record.settings import Settings
from traceview.cli.output import Target, say
from traceview.report.document import Invocation

MAGIC: Final = "traceview"
_EXAMPLE: Final = "%%traceview --steps 10:15 --output logs"


def register(shell: Any) -> None:
    """Give an IPython shell the magic."""

    def magic(line: str, cell: str) -> Any:
        """Record some training steps of this cell: %%traceview --steps 10:15 --output logs."""
        __tracebackhide__ = True
        return capture_cell(shell, line, cell)

    shell.register_magic_function(magic, magic_kind="cell", magic_name=MAGIC)


def capture_cell(shell: Any, line: str, cell: str) -> Any:
    """Run a cell and capture what the options in `line` ask for; returns the value of its last expression.

    The cell raises what it raises without traceview. Invalid options raise IPython's `UsageError`, before it runs.
    """
    __tracebackhide__ = True
    try:
        capture = Capture(Settings.read(line), say)
        capture.prepare()
    except TraceviewError as error:
        from IPython.core.error import UsageError

        hint = error.hint if isinstance(error, CaptureError) else _EXAMPLE
        raise UsageError(f"{error.message}\nhint: {hint}" if hint else error.message) from None
    capture.hooks.install()
    capture.start_clocks()
    problem: CaptureError | None = None
    end: End = "ended"
    try:
        value = _run(shell, cell)
    except BaseException as error:
        end = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
        raise
    finally:
        capture.finish(end)
        problem = capture.outcome(end)
        _show(shell, capture.run, problem)
    return value


def _run(shell: Any, cell: str) -> Any:
    """Execute a cell as IPython does: with magics in it, and sources that `inspect` finds."""
    __tracebackhide__ = True
    source = shell.transform_cell(cell)
    # AutoGraph reads the source of functions that the cell defines.
    name = shell.compile.cache(source, shell.execution_count, raw_code=cell)
    tree = shell.transform_ast(shell.compile.ast_parse(source, filename=name))
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(shell.compile(tree, name, "exec"), shell.user_ns)
    if last is None or source.rstrip().endswith(";"):
        tail = ast.Module([] if last is None else [last], [])
        exec(shell.compile(tail, name, "exec"), shell.user_ns)
        return None
    return eval(shell.compile(ast.Expression(last.value), name, "eval"), shell.user_ns)


def _show(shell: Any, run: Path | None, problem: CaptureError | None) -> None:
    if problem is not None:
        say(problem.message)
        if problem.hint:
            say(f"hint: {problem.hint}")
    if run is None:
        return
    path = os.path.relpath(run)
    say(f"the trace is in {path}")
    try:
        report = traceview.analyze(run)
        if hasattr(shell, "kernel"):
            # It has no types.
            display: Any = import_module("IPython.display").display
            display(report)
        else:
            Target(None).write_report(report, Invocation(path))
    except TraceviewError as error:
        say(f"note: no report: {error.message}")
