"""What does a notebook show of a report? The answer, the numbers, what to change, and the devices.

A fragment of HTML without scripts, ids and links. Its style holds for what is inside it only, and takes the colours of
text and background from the notebook, which may be light or dark whatever the system is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from traceview.analysis.device_time.compute import DeviceTimeRow
from traceview.render import numbers
from traceview.render.devices import STATUS_WORDS
from traceview.render.html.blocks import Part, View, ratio
from traceview.render.html.devices import PARTS
from traceview.render.html.document import environment
from traceview.render.html.findings import cards
from traceview.render.html.places import device_ids
from traceview.render.html.shown import name
from traceview.render.html.summary import summary
from traceview.report.model import Report
from traceview.report.standing_out import standing_out

SHOWN: Final = 20
"""Findings; what is further down costs nothing worth a look."""


@dataclass(frozen=True)
class DeviceLine:
    """A device: its name, what it is, how busy it was, and the parts of its window."""

    name: str
    status: str
    busy: str
    parts: tuple[Part, ...]


def render(report: Report) -> str:
    """The fragment, the same for the same report."""
    found = report.results.device_time
    rows = found.devices if found else ()
    chosen = standing_out(report)
    view = View(
        report=report, most_rows=SHOWN, gaps=(), device_ids=device_ids(report), drawn=frozenset()
    )
    lines = tuple(_line(row) for row in rows if row.device in chosen.shown)
    return (
        environment()
        .get_template("notebook.html.j2")
        .render(
            summary=summary(view),
            cards=tuple(cards(view, SHOWN)),
            left_count=max(len(report.findings) - SHOWN, 0),
            devices=lines,
            other_count=len(rows) - len(lines),
            parts=PARTS,
        )
    )


def _line(row: DeviceTimeRow) -> DeviceLine:
    status = STATUS_WORDS.get(row.status, (row.status, ""))[0]
    return DeviceLine(name(row.device), status, numbers.share(row.busy_ratio), tuple(_parts(row)))


def _parts(row: DeviceTimeRow) -> Iterator[Part]:
    values = vars(row)
    for key, text, fields in PARTS:
        length = sum(values[field] or 0 for field in fields)
        share = ratio(length, row.window_ps)
        if share and row.idle_ps is not None:
            yield Part(key, f"{text} {numbers.share(share)}", share)
