"""What does a user see who waits? Nothing for a second, then how much is being read."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import Final

from traceview.render import numbers

PATIENCE_SECONDS: Final = 1.0


@contextmanager
def reading(path: Path, run: str | None) -> Iterator[None]:
    """Say on standard error what is read, if that is a terminal and it takes long."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    shown: list[str] = []

    def show() -> None:
        text = f"reading {_size(path, run)}…"
        shown.append(text)
        sys.stderr.write(text.encode(sys.stderr.encoding, "replace").decode(sys.stderr.encoding))
        sys.stderr.flush()

    timer = Timer(PATIENCE_SECONDS, show)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        if shown:
            sys.stderr.write(f"\r{' ' * len(shown[0])}\r")
            sys.stderr.flush()


def _size(path: Path, run: str | None) -> str:
    from traceview.errors import TraceviewError
    from traceview.trace.locate import choose_run, find_runs

    try:
        chosen = choose_run(find_runs(path), run)
        return numbers.size(sum(file.stat().st_size for file in chosen.paths)) + " "
    except (TraceviewError, OSError):
        return ""
