"""Which job was it, with which settings, and from where are the numbers?"""

from __future__ import annotations

from traceview.document.page import Page
from traceview.render import numbers
from traceview.render.environment import job_details, job_facts
from traceview.render.html.blocks import Section, View, notes
from traceview.render.html.shown import name

_WIDE = 200


def environment_section(view: View) -> Section:
    """What the sidecar of the capture says, and where the numbers come from."""
    report = view.report
    environment = report.results.environment
    starts = [host.profile_start_ns for host in report.capture.hosts]
    date = numbers.date(min((one for one in starts if one is not None), default=None))
    told = []
    if environment is not None:
        page = Page(_WIDE)
        told = [*job_facts(page, environment), *job_details(page, environment)]
    elif "environment" in report.skipped:
        told = [report.skipped["environment"]]
    return Section(
        "environment",
        "Environment",
        tuple(
            notes(
                [
                    f"run {name(report.source.run)} of {name(report.source.logdir)}",
                    f"profiled {date}" if date else "date not recorded",
                    *told,
                    f"traceview {report.traceview_version}",
                ]
            )
        ),
    )
