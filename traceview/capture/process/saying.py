"""Names the variable of a capture, and writes lines for the user; each start of Python with it imports this, which imports nothing."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from traceview.base.errors import TraceviewError

VARIABLE = "TRACEVIEW_CAPTURE"
FRAMEWORKS = ("tensorflow", "jax")
OFF = ("", "0")
"""Values that switch the capture off, as unsetting the variable does."""


def is_first(text: str) -> bool:
    """Whether this process is the one that became the command. `text`: the value of the variable."""
    return f"--launch={os.getpid()}-" in text


def name_runs(runs: Sequence[Path]) -> None:
    """Write the folders of runs, for a person or a script; one that cannot be shown is quoted for bash and zsh."""
    from traceview.base.text import in_bytes, is_plain

    if len(runs) > 1:
        say(f"{len(runs)} runs were recorded:")
    for run in runs:
        is_shown = is_plain(run, getattr(sys.stderr, "encoding", None) or "utf-8")
        write(str(run) if is_shown else in_bytes(run))


def say_problem(problem: TraceviewError) -> None:
    """Write what is wrong, and what to do."""
    say(problem.message)
    if problem.hint:
        say(f"hint: {problem.hint}")


def say(line: str) -> None:
    """Write a line to standard error, in one piece: other processes write there too."""
    shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)
    text = os.environ.get(VARIABLE, "")
    is_alone = text in OFF or is_first(text)
    write(f"traceview: {shown}" if is_alone else f"traceview[{os.getpid()}]: {shown}")


def write(line: str) -> None:
    """Write a line to standard error; where that is closed, or replaced by the script, nothing happens."""
    try:
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
    except Exception:
        return
