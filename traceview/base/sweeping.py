"""Chooses compiled modules, or their references in Python if the installation had no compiler."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Final


def compiled_or_reference(name: str) -> ModuleType:
    """The compiled module of this name, or the one whose name ends with `_reference`."""
    try:
        return import_module(name)
    except ImportError:
        return import_module(f"{name}_reference")


SWEEPS: Final = compiled_or_reference("traceview.base.sweeps")
"""The sweeps in use."""
