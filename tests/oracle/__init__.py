"""The oracle: docs/method.md recomputed the slow and obvious way, sharing no code with traceview."""

from functools import cache
from pathlib import Path
from typing import Any

from tests.oracle.answer import run_answer

__all__ = ["recorded_answer", "run_answer"]


@cache
def recorded_answer(logdir: Path, window: str = "auto") -> dict[str, Any]:
    """The answer on a recorded run, made once for all tests that ask for it."""
    files = sorted(logdir.rglob("*.xplane.pb"))
    assert files, logdir
    return run_answer(files, window)
