"""Imports modules on a thread while the decoder, which needs no Python, reads a file."""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from threading import Thread
from typing import Final

_ANALYSIS: Final = (
    "traceview.report.build",
    "traceview.report.screen",
    "traceview.document.screen",
)


def import_analysis() -> None:
    """Begin to import what analyses a trace and shows the report; who needs a module sooner waits for it."""
    # Where no more threads may be started, in a container for instance, nothing is imported ahead.
    with suppress(RuntimeError):
        Thread(target=_import, args=(_ANALYSIS,), daemon=True).start()


def _import(names: tuple[str, ...]) -> None:
    for name in names:
        # What is wrong with a module is said where it is used.
        with suppress(Exception):
            import_module(name)
