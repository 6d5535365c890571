"""The variable that captures processes which traceview did not start, as far as every start of Python reads it.

The module `variable` reads the whole value.
"""

from __future__ import annotations

VARIABLE = "TRACEVIEW_CAPTURE"
OFF = ("", "0")
"""Values that switch the capture off, as unsetting the variable does."""
JOURNAL_OPTION = "--journal="
REACHED = "reached"
"""A file in the journal: some Python has read the variable."""
