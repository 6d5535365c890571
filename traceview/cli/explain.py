"""`traceview explain`: what does a finding mean?"""

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
            metavar="[CODE]", help="The finding; all are listed without it.", show_default=False
        ),
    ] = None,
    width: Width = None,
) -> None:
    """Say what a finding means, what shows it and what to do.

    Example: traceview explain unused-gpu
    """
    from traceview.analysis.catalogue import FINDINGS
    from traceview.render.explain import render_list, render_one

    target = Target(None)
    columns, color, unicode = target.width(width), target.has_color, target.has_unicode
    if code is None:
        target.write(render_list(FINDINGS.values(), width=columns, color=color, unicode=unicode))
        return
    kind = FINDINGS.get(code.lower())
    if kind is None:
        raise UsageError(f"no finding is called {code!r}", hint=_near(code, list(FINDINGS)))
    target.write(render_one(kind, width=columns, color=color, unicode=unicode))


def _near(code: str, known: list[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(code.lower(), known, cutoff=0.5)
    return f"did you mean {' or '.join(near)}?" if near else "traceview explain lists them"
