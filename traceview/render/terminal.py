"""The report for a terminal: what was captured, the answer, the hosts, the devices, the steps, the findings, the ops."""

from __future__ import annotations

from traceview.document.page import Page
from traceview.render.balance import add_balance
from traceview.render.collectives import add_collectives
from traceview.render.devices import add_devices
from traceview.render.environment import add_environment, add_job
from traceview.render.findings import add_findings
from traceview.render.heading import add_capture, add_heading, add_verdict
from traceview.render.hosts import add_hosts
from traceview.render.idle import add_idle
from traceview.render.input import add_input
from traceview.render.launches import add_launches
from traceview.render.ops import add_top_ops
from traceview.render.outside_view import add_outside_view
from traceview.render.placement import add_placement
from traceview.render.steps import add_steps
from traceview.render.transfers import add_transfers
from traceview.report.model import Report


def render(report: Report, *, width: int, color: bool, unicode: bool = True, top: int) -> str:
    """The whole report in lines of at most `width` columns.

    `color`: with escape sequences of the 16 colours. `unicode`: False for a terminal that shows ASCII only.
    `top`: rows of the op table per device.
    """
    page = Page(width, color, unicode)
    add_heading(page, report)
    add_job(page, report)
    add_verdict(page, report)
    add_capture(page, report)
    add_environment(page, report)
    add_hosts(page, report)
    add_devices(page, report)
    add_idle(page, report)
    add_steps(page, report)
    add_placement(page, report)
    add_outside_view(page, report)
    add_input(page, report)
    add_transfers(page, report)
    add_balance(page, report)
    add_collectives(page, report)
    add_launches(page, report)
    add_findings(page, report)
    add_top_ops(page, report, top)
    return page.render()
