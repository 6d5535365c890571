"""Which traceview is this? The one place that says so; the distribution reads it here."""

from typing import Final

VERSION: Final = "0.1.0"
