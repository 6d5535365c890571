"""The report for a terminal: what was captured, the answer, the devices, the steps, the findings, the ops."""

from __future__ import annotations

from traceview.render.devices import add_devices
from traceview.render.findings import add_findings
from traceview.render.heading import add_capture, add_heading, add_verdict
from traceview.render.ops import add_top_ops
from traceview.render.page import Page
from traceview.render.steps import add_steps
from traceview.report.model import Report


def render(report: Report, *, width: int, color: bool, unicode: bool = True, top: int) -> str:
    """The whole report in lines of at most `width` columns.

    `color`: with escape sequences of the 16 colours. `unicode`: False for a terminal that shows ASCII only.
    `top`: rows of the op table per device.
    """
    page = Page(width, color, unicode)
    add_heading(page, report)
    add_verdict(page, report)
    add_capture(page, report)
    add_devices(page, report)
    add_steps(page, report)
    add_findings(page, report)
    add_top_ops(page, report, top)
    return page.render()
