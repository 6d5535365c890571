"""Which traceview is this? The one place that says so; the distribution reads it here."""

VERSION = "0.1.0"
