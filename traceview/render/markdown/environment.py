"""Which job was it, with which settings, and what was asked of which device?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from traceview.analysis.placement import HostPlacement, PlacedFunction
from traceview.document.page import Page
from traceview.render import numbers
from traceview.render.environment import job_details, job_facts
from traceview.render.markdown.blocks import Column, Section, bullets, table
from traceview.render.markdown.inline import code, prose
from traceview.report.model import Report

_WIDE: Final = 2000
"""Columns of a page on which no fact loses its middle."""

SHOWN_HOSTS: Final = 3
SHOWN_FUNCTIONS: Final = 3
SHOWN_DEVICES: Final = 16
SHOWN_STATEMENTS: Final = 12


def environment_section(report: Report) -> Section | None:
    """What the sidecar of the capture says, and where the numbers come from."""
    facts = [f"run {code(report.source.run)} of {code(report.source.logdir)}"]
    starts = [host.profile_start_ns for host in report.capture.hosts]
    date = numbers.date(min((one for one in starts if one is not None), default=None))
    facts.append(f"profiled {date}" if date else "date not recorded")
    environment = report.results.environment
    if environment is not None:
        page = Page(_WIDE)
        told = [*job_facts(page, environment), *job_details(page, environment)]
        facts += [prose(one) for one in told]
    elif "environment" in report.skipped:
        facts.append(prose(report.skipped["environment"]))
    facts.append(f"traceview {prose(report.traceview_version)}")
    return Section("Environment", (bullets(facts),))


def placement_section(report: Report) -> Section | None:
    """The graph of each step function beside the devices that ran work."""
    placement = report.results.placement
    if placement is None:
        return None
    told = [host for host in placement.hosts if host.functions or host.statements]
    blocks = [block for host in told[:SHOWN_HOSTS] for block in _of_host(host)]
    if len(told) > SHOWN_HOSTS:
        blocks.append(f"{numbers.plural(len(told) - SHOWN_HOSTS, 'more host')}: in the JSON.")
    return Section("Placement: asked for, and recorded", tuple(blocks)) if blocks else None


def _of_host(host: HostPlacement) -> list[str]:
    blocks = [f"Host {code(host.host)}"]
    for function in host.functions[:SHOWN_FUNCTIONS]:
        blocks += _of_function(function, host.step_count)
    statements: Sequence[str] = host.statements[:SHOWN_STATEMENTS]
    return [*blocks, bullets(map(prose, statements))]


def _of_function(function: PlacedFunction, step_count: int) -> list[str]:
    graph, devices = function.graph, function.devices[:SHOWN_DEVICES]
    about = f"Step function {code(graph.step or graph.name or numbers.ABSENT)}"
    if graph.op_count is not None:
        about += f", {numbers.plural(graph.op_count, 'op')}"

    def counts(heading: str, values: list[int | None]) -> Column:
        return Column(heading, [numbers.count(value) for value in values], right=True)

    return [
        about,
        table(
            [
                Column("device", [code(one.device) for one in devices]),
                counts("ops asked", [one.op_count for one in devices]),
                counts("variables", [one.variable_count for one in devices]),
                counts("mirrored", [one.mirrored_count for one in devices]),
                Column("recorded as", [code(one.recorded or "") for one in devices]),
                Column(
                    f"work in, of {numbers.plural(step_count, 'step')}",
                    [numbers.count(one.step_count) for one in devices],
                    right=True,
                ),
            ]
        ),
    ]
