"""Defines `traceview explain`: what a finding or a state means, and the keys of what commands write as JSON."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Final

from traceview.base.errors import UsageError
from traceview.base.text import did_you_mean
from traceview.cli.options import Width, argument, choice
from traceview.cli.output import Target

_RECORDS: Final = {
    "report": "traceview.report.model.Report",
    "comparison": "traceview.comparison.model.Comparison",
    "gate": "traceview.comparison.model.GateResult",
    "history": "traceview.comparison.history.History",
}
"""The records that have a schema."""


def explain(
    code: Annotated[
        str | None,
        argument(
            "[CODE|STATE]", "Code of a finding, or a state of a device; without it all are listed."
        ),
    ] = None,
    schema: Annotated[
        str | None,
        choice(
            "|".join(_RECORDS),
            "Print the JSON Schema of this instead.",
            "--schema",
            tuple(_RECORDS),
        ),
    ] = None,
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
    Target(None, columns=width).write_sections([section])


def _schema(kind: str) -> str:
    """The JSON Schema: keys, units, meanings."""
    from traceview.report.saved import schema_of, schema_text

    if kind == "report":
        return schema_text()
    module, _, name = _RECORDS[kind].rpartition(".")
    return schema_of(getattr(import_module(module), name), f"traceview {kind}")
