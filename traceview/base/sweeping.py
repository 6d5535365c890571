"""Chooses the sweeps: the compiled ones, or the reference if the installation had no compiler."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Final

from traceview.base import sweeps_reference

try:
    _compiled: ModuleType | None = import_module("traceview.base.sweeps")
except ImportError:
    _compiled = None

SWEEPS: Final[ModuleType] = sweeps_reference if _compiled is None else _compiled
"""The sweeps in use."""
