"""Is looking for garbage worth its time? Not in a process that reads, prints and ends."""

from __future__ import annotations

import gc


def collect_no_garbage() -> None:
    """Leave unreachable cycles alone from here on: the end of the process frees them."""
    gc.disable()
