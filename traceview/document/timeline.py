"""Writes the figure of the timeline: a picture, and the data from which a script makes it live."""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from markupsafe import Markup

from traceview.document import numbers, svg
from traceview.document.chart import Lane, Lanes, legend, merged_sentence, of_host, window_offsets
from traceview.document.html_text import LONGEST_NAME, cut, prose
from traceview.document.model import Summary, Timeline, gap_anchor
from traceview.document.vocabulary import CLASSES, STATES, STEP_KINDS, Look, thread_name

_ESCAPES: Final = str.maketrans(
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
)
_HINT: Final = (
    "Drag to pan; to zoom, turn the wheel with Ctrl, or after a click here. Keys: ↑ and ↓ choose a lane, ← and → its "
    "slices, with Shift they pan; + and − zoom, Home shows all, Enter opens a device or shows the gap, Esc goes back."
)


def figure(timeline: Timeline, summary: Summary, anchors: Container[str]) -> Markup:
    """The figure, or why there is none. `anchors`: those on the page; a slice leads to no other."""
    lanes = timeline.lanes
    if lanes is None or not lanes.devices:
        return Markup('<p id="timeline">No timeline: {}.</p>').format(prose(timeline.reason))
    return Markup(
        '<figure id="timeline" class="tv" aria-label="Timeline">\n'
        '<figcaption><p class="tv-legend">{legend}</p>'
        '<p class="tv-cut">{reading}</p>'
        '<p class="tv-hint" id="tv-hint" hidden>{hint}</p></figcaption>\n'
        '<div class="tv-static">{picture}</div>\n'
        '<script type="application/json" id="timeline-data">{data}</script>\n'
        "</figure>"
    ).format(
        legend=_legend(legend(lanes)),
        reading=f"Times count from the start of the window. Height: how much of a slice is filled. {merged_sentence(lanes)}".strip(),
        hint=_HINT,
        picture=Markup(svg.picture(timeline, summary, is_alone=False)),
        data=Markup(_json(_data(timeline, lanes, anchors))),
    )


def _legend(groups: Mapping[str, Sequence[Look]]) -> Markup:
    swatch = Markup('<span><i class="{}" style="background:var(--tv-{})">{}</i>{}</span>')
    parts: list[Markup] = []
    for heading, looks in groups.items():
        if heading:
            parts.append(Markup("<span>{}:</span>").format(heading))
        for look in looks:
            class_ = "tv-hatched" if look.is_hatched else "tv-plain"
            parts.append(swatch.format(class_, look.style, look.letter, look.words))
    return Markup(" ").join(parts)


def _data(timeline: Timeline, lanes: Lanes, anchors: Container[str]) -> dict[str, Any]:
    begin_ps, span = window_offsets(lanes)
    hosts = {host.host: place for place, host in enumerate(lanes.hosts)}
    devices = {device.device: place for place, device in enumerate(lanes.devices)}
    listed = timeline.outliers or tuple(devices)
    return {
        "span": span,
        "hosts": [
            {
                "name": cut(host.host, LONGEST_NAME),
                "offset": begin_ps[host.host],
                "lanes": [_lane(lane) for lane in host.lanes],
            }
            for host in lanes.hosts
        ],
        "devices": [
            {
                "name": cut(device.device, LONGEST_NAME),
                "host": hosts[device.host],
                "lanes": [_lane(lane) for lane in device.lanes],
            }
            for device in lanes.devices
        ],
        "folded": [place for device, place in devices.items() if device not in listed],
        "names": [cut(name, LONGEST_NAME) or numbers.ABSENT for name in lanes.names],
        "gaps": [
            [
                *(devices[span.device], span.start_ps, span.end_ps, number),
                *([cut(timeline.lines[number], LONGEST_NAME)] if number in timeline.lines else []),
            ]
            for number, span in timeline.gaps
            if span.device in devices and gap_anchor(number) in anchors
        ],
        "activities": _looks((*CLASSES.values(), *STEP_KINDS.values())),
        "states": _looks(STATES.values()),
        "thread_states": _looks(map(of_host, STATES.values())),
    }


def _looks(looks: Iterable[Look]) -> dict[str, tuple[str, str, str, bool]]:
    return {look.key: (look.style, look.letter, look.words, look.is_hatched) for look in looks}


def _lane(lane: Lane) -> dict[str, Any]:
    columns: dict[str, Any] = msgspec.to_builtins(lane)
    if lane.thread is not None:
        columns["thread"] = cut(thread_name(lane.thread) or "", LONGEST_NAME) or numbers.ABSENT
    if lane.resolution_ps:
        columns["resolution"] = numbers.time(lane.resolution_ps)
    return columns


def _json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.translate(_ESCAPES)
