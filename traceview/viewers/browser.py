"""Opens a page in the browser of the user, where there is a display."""

from __future__ import annotations

import os
import sys
import webbrowser

_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")


def has_display() -> bool:
    """Whether a browser has a display: without one a browser in the terminal would take it over."""
    if sys.platform in ("darwin", "win32"):
        return True
    return any(os.environ.get(name) for name in _DISPLAYS)


def show(address: str) -> bool:
    """Open the page in the user's browser; False where there is none."""
    try:
        return has_display() and webbrowser.open(address)
    except webbrowser.Error:
        return False
