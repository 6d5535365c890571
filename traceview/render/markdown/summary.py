"""What has to be known in ten seconds? The job, the answer, four numbers, what to change, and how to get this page."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator
from typing import Final

from traceview.analysis.base import Finding
from traceview.document.page import Page
from traceview.render import numbers
from traceview.render.balance import WHAT_IF_WORDS
from traceview.render.environment import job_facts
from traceview.render.findings import told_cost
from traceview.render.heading import found_steps
from traceview.render.markdown.blocks import Column, fenced, table
from traceview.render.markdown.inline import code, plain, prose
from traceview.report.model import Report
from traceview.report.recoverable import recoverable

SHOWN: Final = 5
"""Findings of the first screen; the section on findings has all of them."""

_KIND_WORDS: Final = {
    "gpu": "GPU",
    "tpu": "TPU",
    "replica": "replica on the host",
    "other": "device",
}
_QUALITY_WORDS: Final = {
    "degraded": "**The capture is degraded**: some numbers are incomplete, see *Capture quality*.",
    "unusable": "**The capture is unusable**: it says nothing about the devices, see *Capture quality*.",
}


def first_screen(report: Report) -> list[str]:
    """The blocks on top of the page; what they hold is bounded."""
    return [
        f"# traceview: run {code(report.source.run, 60)}",
        " · ".join(_job(report)),
        f"**{prose(report.verdict.headline)}**",
        _numbers(report),
        _QUALITY_WORDS.get(report.capture.quality, ""),
        *_findings(report),
        *_command(report),
    ]


def _job(report: Report) -> Iterator[str]:
    hosts = [host.host for host in report.capture.hosts]
    if hosts:
        yield code(hosts[0], 60) if len(hosts) == 1 else numbers.plural(len(hosts), "host")
    found = report.results.device_time
    models = (
        Counter((row.model or _KIND_WORDS.get(row.kind, row.kind)) for row in found.devices)
        if found
        else Counter()
    )
    if found and [row.kind for row in found.devices] == ["replica"]:
        models = Counter(["CPU"])
    yield from (f"{count} × {prose(model)}" for model, count in models.items())
    environment = report.results.environment
    if environment is not None:
        page = Page(200)
        yield from (prose(fact) for fact in job_facts(page, environment))
    steps = report.results.steps
    yield plain(found_steps(steps)) if steps else "no steps found"
    lengths = sorted(window.end_ps - window.start_ps for window in report.windows)
    if lengths:
        yield f"window {numbers.time(lengths[-1])}"


def _numbers(report: Report) -> str:
    columns = [
        Column(prose(one.label), [numbers.measured(one.key, one.value)], right=True)
        for one in report.verdict.numbers
    ]
    most = recoverable(report)
    if most is None:
        return table([*columns, Column("recoverable", [f"{numbers.ABSENT}"], right=True)])
    whole = "the step" if report.results.steps else "the window"
    told = [numbers.time(most.ps_per_step)] if most.ps_per_step is not None else []
    if most.ratio is not None:
        told.append(f"{plain(numbers.share(most.ratio))} of {whole}")
    change = WHAT_IF_WORDS.get(most.source)
    cell = f"{', '.join(told)} ({plain(change) if change else code(most.source)})"
    return table([*columns, Column("recoverable by one change, at most", [cell], right=True)])


def _findings(report: Report) -> Iterator[str]:
    shown = report.findings[:SHOWN]
    if not shown:
        yield "No finding: nothing passed its threshold."
        return
    yield "\n".join(
        f"{place}. {_told(finding, report.results.steps is not None)}"
        for place, finding in enumerate(shown, start=1)
    )
    left = len(report.findings) - len(shown)
    if left:
        yield f"{numbers.plural(left, 'more finding')} below."


def _told(finding: Finding, has_steps: bool) -> str:
    cost = told_cost(finding, has_steps)
    facts = [f"costs {plain(cost)}"] if cost else []
    facts.append(f"confidence {finding.confidence}")
    return (
        f"**{finding.severity}** `{finding.code}`: {prose(finding.title)}  \n"
        f"   {', '.join(facts)}. {prose(finding.advice)}"
    )


def _command(report: Report) -> Iterator[str]:
    if report.command:
        yield fenced([shlex.join(report.command)], "sh")
