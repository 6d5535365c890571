"""What was asked of which device, and which devices ran work?"""

from __future__ import annotations

from collections.abc import Iterator

from traceview.analysis.placement import HostPlacement, PlacedFunction
from traceview.document import numbers
from traceview.document.page import Page
from traceview.render import numbers
from traceview.render.html.blocks import (
    Block,
    Section,
    Subheading,
    View,
    counts,
    devices,
    names,
    notes,
    sizes,
    table,
)
from traceview.render.html.shown import sentence
from traceview.render.placement import about, alike

SHOWN_GROUPS = 6
SHOWN_FUNCTIONS = 6
_WIDE = 200


def placement_section(view: View) -> Section | None:
    """The graph of each step function beside the devices that ran work."""
    placement = view.report.results.placement
    if placement is None:
        return None
    groups = alike([host for host in placement.hosts if host.functions or host.statements])
    blocks = [block for group in groups[:SHOWN_GROUPS] for block in _of_hosts(view, group)]
    left = sum(map(len, groups[SHOWN_GROUPS:]))
    if left:
        blocks += notes([f"{numbers.plural(left, 'more host')}: the JSON report."])
    return (
        Section("placement", "Placement: asked for, and recorded", tuple(blocks))
        if blocks
        else None
    )


def _of_hosts(view: View, group: list[HostPlacement]) -> Iterator[Block]:
    host = group[0]
    if len(view.report.capture.hosts) > 1:
        yield Subheading(f"On {numbers.listed([one.host for one in group])}")
    for function in host.functions[:SHOWN_FUNCTIONS]:
        yield from _of_function(view, function, host.step_count)
    left = len(host.functions) - SHOWN_FUNCTIONS
    more = [f"{numbers.plural(left, 'more function')}: the JSON report."] if left > 0 else []
    missing = [f"{name}: {reason}." for name, reason in host.missing.items()]
    yield from notes([*more, *map(sentence, host.statements), *missing[:SHOWN_FUNCTIONS]])


def _of_function(view: View, function: PlacedFunction, step_count: int) -> Iterator[Block]:
    rows = function.devices[: view.most_rows]
    yield Subheading(", ".join(about(Page(_WIDE), function)))
    yield from table(
        "Devices of a step function",
        [
            names("device", [one.device for one in rows]),
            counts("ops asked", [one.op_count for one in rows]),
            counts("variables", [one.variable_count for one in rows]),
            counts("mirrored", [one.mirrored_count for one in rows]),
            sizes("size", [one.variable_bytes for one in rows]),
            devices(view, [one.recorded for one in rows], "recorded as"),
            counts(
                f"work in, of {numbers.plural(step_count, 'step')}",
                [one.step_count for one in rows],
            ),
        ],
        row_count=len(function.devices),
        rest="the JSON report",
    )
