"""The report as one page of Markdown: the answer first, then what an expert needs to check it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from traceview.render.markdown.balance import balance_section
from traceview.render.markdown.blocks import Section, rendered
from traceview.render.markdown.capture import capture_section, outside_view_section
from traceview.render.markdown.causes import between_steps_section, causes_section, gaps_section
from traceview.render.markdown.collectives import collectives_section
from traceview.render.markdown.definitions import definitions_section
from traceview.render.markdown.devices import devices_section, timeline_section
from traceview.render.markdown.environment import environment_section, placement_section
from traceview.render.markdown.findings import findings_section
from traceview.render.markdown.input import input_section
from traceview.render.markdown.launches import launches_section
from traceview.render.markdown.ops import ops_section
from traceview.render.markdown.steps import steps_section
from traceview.render.markdown.summary import first_screen
from traceview.render.markdown.transfers import transfers_section
from traceview.report.model import Report

MOST_BYTES: Final = 60_000
"""A comment on GitHub holds 65,536 characters; something has to be left for what is written around a report."""

_Part: TypeAlias = Callable[[Report], "Section | None"]

PARTS: Final[tuple[_Part, ...]] = (
    findings_section,
    devices_section,
    timeline_section,
    causes_section,
    gaps_section,
    steps_section,
    between_steps_section,
    input_section,
    transfers_section,
    collectives_section,
    balance_section,
    launches_section,
    ops_section,
    environment_section,
    placement_section,
    outside_view_section,
    capture_section,
    definitions_section,
)
_CUT: Final = "**Cut at {size} kB**, left out: {titles}. The JSON report holds everything."
_ROOM_FOR_CUT: Final = 1000


def render(report: Report, most_bytes: int = MOST_BYTES) -> str:
    """The page in at most `most_bytes` bytes of UTF-8; parts that do not fit are named at its end.

    What comes first is always there, and is some kilobytes at most.
    """
    blocks = [block for block in first_screen(report) if block]
    room = most_bytes - _ROOM_FOR_CUT - sum(_size(block) for block in blocks)
    left_out = []
    for part in PARTS:
        section = part(report)
        if section is None:
            continue
        block = rendered(section)
        if _size(block) > room:
            left_out.append(section.title)
            continue
        room -= _size(block)
        blocks.append(block)
    if left_out:
        blocks.append(_CUT.format(size=most_bytes // 1000, titles=", ".join(left_out)))
    return "\n\n".join(blocks) + "\n"


def _size(block: str) -> int:
    """Bytes of a block and of the empty line after it."""
    return len(block.encode()) + 2
