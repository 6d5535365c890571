"""`python -m traceview` is the command `traceview`."""

from __future__ import annotations

from traceview.cli import main

if __name__ == "__main__":
    main()
