"""Chooses the sweeps: the compiled ones, or the reference if the installation had no compiler."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Final


def _sweeps() -> ModuleType:
    try:
        return import_module("traceview.base.sweeps")
    except ImportError:
        return import_module("traceview.base.sweeps_reference")


SWEEPS: Final = _sweeps()
"""The sweeps in use."""
