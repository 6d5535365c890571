"""Defines `traceview explain`: what a finding or a state means, and the keys of what commands write as JSON."""

from __future__ import annotations

from enum import Enum
from importlib import import_module
from typing import Annotated, Final

from traceview.base.errors import UsageError
from traceview.base.text import did_you_mean
from traceview.cli.options import Width, argument, option
from traceview.cli.output import Target


class Kind(str, Enum):
    """What has a schema."""

    report = "report"
    comparison = "comparison"
    gate = "gate"
    history = "history"


def explain(
    code: Annotated[
        str | None,
        argument(
            "[CODE|STATE]", "Code of a finding, or a state of a device; without it all are listed."
        ),
    ] = None,
    schema: Annotated[Kind | None, option("", "Print the JSON Schema of this instead.")] = None,
    width: Width = None,
) -> None:
    """Explain a finding or a state: meaning, evidence, and advice.

    Example: traceview explain unused-gpu
    """
    from traceview.analysis.registry import RULES
    from traceview.document.vocabulary import STATES
    from traceview.report.explain import explain_list, explain_section, explain_state

    if schema is not None:
        if code is not None:
            raise UsageError("--schema and CODE exclude each other")
        Target(None).write(_schema(schema).encode())
        return
    names = {look.words.lower(): key for key, look in STATES.items()}
    asked = None if code is None else names.get(code.lower(), code.lower())
    if asked is None:
        section = explain_list(RULES.values(), STATES.values())
    elif asked in RULES:
        section = explain_section(RULES[asked])
    elif asked in STATES:
        section = explain_state(STATES[asked])
    else:
        hint = did_you_mean(asked, [*RULES, *STATES], "traceview explain lists them")
        raise UsageError(f"no finding or state is called {code!r}", hint=hint)
    Target(None).write_sections([section], width)


_RECORDS: Final = {
    Kind.comparison: ("model", "Comparison"),
    Kind.gate: ("model", "GateResult"),
    Kind.history: ("history", "History"),
}
"""By kind the module below `traceview.comparison` and the record in it."""


def _schema(kind: Kind) -> str:
    """The JSON Schema: keys, units, meanings."""
    from traceview.report.saved import schema_of, schema_text

    if kind is Kind.report:
        return schema_text()
    module, name = _RECORDS[kind]
    record = getattr(import_module(f"traceview.comparison.{module}"), name)
    return schema_of(record, f"traceview {kind.value}")
