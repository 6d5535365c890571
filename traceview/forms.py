"""How does a report show itself, when it stands below everything that draws it?

`Report.to_html()` and the view of a notebook are asked of the report, but made by `traceview.render`, which knows the
report. So the report asks here, and `traceview` itself, which stands above both, says at its import who answers. Nothing
that draws is imported before somebody asks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

Draw: TypeAlias = Callable[[Any], str]
"""From a report to its text."""

_draw_by_form: dict[str, Draw] = {}


def let_draw(form: str, draw: Draw) -> None:
    """From now on `draw` answers for this form: `json`, `markdown`, `html` or `notebook`."""
    _draw_by_form[form] = draw


def drawn(report: object, form: str) -> str:
    """The report in this form."""
    return _draw_by_form[form](report)
