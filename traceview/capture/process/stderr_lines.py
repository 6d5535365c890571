"""Writes lines for the user from a process that traceview did not start."""

from __future__ import annotations

import os
import sys


def say(line: str) -> None:
    """Write a line to standard error, in one piece: other processes write there too."""
    shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)
    try:
        sys.stderr.write(f"traceview[{os.getpid()}]: {shown}\n")
        sys.stderr.flush()
    except (AttributeError, OSError, ValueError):
        return  # closed, or replaced by the script
