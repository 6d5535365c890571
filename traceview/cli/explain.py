"""Defines `traceview explain`: what a finding means, what shows it, and what to do."""

from __future__ import annotations

from typing import Annotated

import typer

from traceview.cli.options import Width
from traceview.cli.output import Target
from traceview.errors import UsageError


def explain(
    code: Annotated[
        str | None,
        typer.Argument(
            metavar="[CODE]",
            help="Code of the finding; without it all are listed.",
            show_default=False,
        ),
    ] = None,
    width: Width = None,
) -> None:
    """Explain a finding: what it means, its evidence, and what to do.

    Example: traceview explain unused-gpu
    """
    from traceview.analysis.registry import RULES
    from traceview.report.explain import explain_list, explain_section

    if code is None:
        section = explain_list(RULES.values())
    elif code.lower() in RULES:
        section = explain_section(RULES[code.lower()])
    else:
        raise UsageError(f"no finding is called {code!r}", hint=_near(code, list(RULES)))
    Target(None).write_section(section, width)


def _near(code: str, known: list[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(code.lower(), known, cutoff=0.5)
    return f"did you mean {' or '.join(near)}?" if near else "traceview explain lists them"
