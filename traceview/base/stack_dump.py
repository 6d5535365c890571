"""Says where `faulthandler` writes the stacks of all threads, where no Python can run to describe them."""

from __future__ import annotations

from typing import Final

FILE_PREFIX: Final = ".traceview-stacks-"
"""Of the file of a process that is captured; host, number of the process and a random part follow."""
