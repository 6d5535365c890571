"""Puts an error into one short text, for a reader who wants to know why something is missing."""

from __future__ import annotations

from typing import Final

_LONGEST: Final = 200
"""Characters; messages of TensorFlow go on with stacks and dumps, and the cause is at their start."""


def reason_of(error: BaseException) -> str:
    """Its kind and its message, without credentials."""
    # Compiling the patterns takes longer than what a script without an error does here.
    from traceview.capture.secrets import masked

    return masked(f"{type(error).__name__}: {error}")[:_LONGEST]
