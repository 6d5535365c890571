"""Defines `traceview schema`: the JSON Schema of a report, and of what other commands write as JSON."""

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
    gate = "gate"
    history = "history"


def schema(
    of: Annotated[Kind, typer.Option("--of", help="What to describe.")] = Kind.report,
    output: Output = None,
    force: Force = False,
) -> None:
    """Print the JSON Schema of a report: keys, units, meanings.

    Example: traceview schema -o schema.json
    """
    target = Target.of(output, force=force)
    target.write(_text(of).encode())


def _text(of: Kind) -> str:
    from traceview.report.saved import schema_of, schema_text

    if of is Kind.comparison:
        from traceview.gate.compared import JudgedComparison

        return schema_of(JudgedComparison, "traceview comparison")
    if of is Kind.gate:
        from traceview.gate.result import GateResult

        return schema_of(GateResult, "traceview gate")
    if of is Kind.history:
        from traceview.history.result import History

        return schema_of(History, "traceview history")
    return schema_text()
