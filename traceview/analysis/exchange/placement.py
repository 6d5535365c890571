"""Placement: what the graph of each step function places on each device, and in how many steps the device ran work."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from traceview.analysis.measures.context import Analysis, View
from traceview.analysis.measures.placement import (
    HostPlacement,
    PlacedFunction,
    Placement,
    alike_hosts,
    placement_of,
)
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.sanitize import shortened

MOST_GROUPS: Final = 6
"""Groups of hosts with equal strategies; a healthy run has one."""
MOST_FUNCTIONS: Final = 6
"""Step functions of a host; a script has one or two."""
BRIEF: Final = 3
"""Groups of hosts, functions of a host and reasons of a brief document."""

BRIEF_DEVICES: Final = 16
"""Devices with a row in a brief document: those of two usual hosts."""

_SHOWN_HOSTS: Final = 4
"""Hosts that are named; more of them are counted."""
_WIDEST_NAME: Final = 40
"""Characters; the middle of a longer name is left out, so that a line still has room for its description."""
_IN_JSON: Final = "see the JSON report"


def placement_section(view: View, result: Placement) -> doc.Section | None:
    """The step functions of each host; without a sidecar only hosts whose devices change."""
    worth_showing = [
        host
        for host in result.hosts
        if host.functions or len(host.active) > 1 or (host.has_sidecar and host.missing)
    ]
    groups = alike_hosts(worth_showing)
    shown = groups[: BRIEF if view.is_brief else MOST_GROUPS]
    more = sum(map(len, groups[len(shown) :]))
    blocks: list[doc.Block] = []
    for group in shown:
        if len(result.hosts) > 1:
            hosts = numbers.listed([host.host for host in group], most=_SHOWN_HOSTS)
            blocks.append(doc.Subheading(f"On {hosts}"))
        blocks += _of_host(view, group[0])
    blocks += doc.remarks(f"{numbers.plural(more, 'more host')}: {_IN_JSON}." if more else None)
    return doc.Section("placement", "Placement", tuple(blocks)) if blocks else None


def _of_host(view: View, host: HostPlacement) -> Iterator[doc.Block]:
    most = BRIEF if view.is_brief else MOST_FUNCTIONS
    for function in host.functions[:most]:
        yield from _of_function(view, function, host)
    more = len(host.functions) - most
    yield from doc.remarks(
        f"{numbers.plural(more, 'more function')}: {_IN_JSON}." if more > 0 else None
    )
    reasons = list(host.missing.items())[:most] if host.has_sidecar else []
    yield from doc.notes(
        # The subheading names the host.
        *(statement.replace(f"{host.host}/", "") for statement in host.statements),
        *(f"{shortened(name, _WIDEST_NAME)}: {reason}" for name, reason in reasons),
    )


def _of_function(view: View, function: PlacedFunction, host: HostPlacement) -> Iterator[doc.Block]:
    rows = function.devices[: BRIEF_DEVICES if view.is_brief else view.most_rows]
    yield doc.Subheading(", ".join(_description(function)))
    yield from doc.table(
        "Devices of a step function",
        (
            doc.names("device", [row.device for row in rows]),
            doc.counts("ops placed", [row.op_count for row in rows]),
            doc.counts("variables", [row.variable_count for row in rows]),
            doc.counts("mirrored", [row.mirrored_count for row in rows], priority=3),
            doc.sizes("size", [row.variable_bytes for row in rows], priority=4),
            doc.devices("recorded as", [row.recorded for row in rows], priority=2),
            doc.counts(
                f"work in, of {numbers.plural(host.step_count, 'step')}",
                [row.step_count for row in rows],
                priority=1,
            ),
        ),
        row_count=len(function.devices),
        rest="the JSON report",
    )


def _description(function: PlacedFunction) -> Iterator[str]:
    """What a step function is, a few words each."""
    graph = function.graph
    yield shortened(graph.step or graph.name or "a step function", _WIDEST_NAME)
    if graph.op_count is not None:
        yield numbers.plural(graph.op_count, "op")
    if graph.ops_without_device:
        whole = graph.ops_without_device == graph.op_count
        count = numbers.count(graph.ops_without_device)
        yield f"{'none' if whole else count} of them {'' if whole else 'not '}assigned to a device"
    if graph.traces is not None and graph.traces > 1:
        yield f"the newest of {numbers.plural(graph.traces, 'trace')}"
    if graph.training_loop is not None:
        yield f"several steps per call ({shortened(graph.training_loop, _WIDEST_NAME)})"
    if graph.jit_compile:
        yield "compiled by XLA as a whole"


ANALYSIS: Final = Analysis[Placement](
    "placement",
    compute=lambda context: context.once(placement_of),
    sections=(placement_section,),
)
