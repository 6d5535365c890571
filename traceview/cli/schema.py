"""Defines `traceview schema`: the JSON Schema of a report or of a comparison."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from traceview.cli.options import Force, Output
from traceview.cli.output import Target


class Kind(str, Enum):
    """What has a schema."""

    report = "report"
    comparison = "comparison"


def schema(
    of: Annotated[Kind, typer.Option("--of", help="What to describe.")] = Kind.report,
    output: Output = None,
    force: Force = False,
) -> None:
    """Print the JSON Schema of a report: keys, units, meanings.

    Example: traceview schema -o schema.json
    """
    target = Target.of(output, force=force)
    if of is Kind.comparison:
        from traceview.comparison.formats import schema_text as of_comparison

        target.write(of_comparison().encode())
        return
    from traceview.report.saved import schema_text

    target.write(schema_text().encode())
