"""Defines `traceview schema`: the JSON Schema of a report."""

from __future__ import annotations

from traceview.cli.options import Force, Output
from traceview.cli.output import Target


def schema(output: Output = None, force: Force = False) -> None:
    """Print the JSON Schema of a report: keys, units, meanings.

    Example: traceview schema -o schema.json
    """
    from traceview.report.saved import schema_text

    Target.of(output, force=force).write(schema_text().encode())
