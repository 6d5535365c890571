"""The figure on the page that shows what each device did when: a picture, and the data that a script makes it live with."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from markupsafe import Markup

from traceview.analysis.lanes.result import Lane, Lanes
from traceview.render import numbers, svg
from traceview.render.html.places import numbered_gaps
from traceview.render.html.shown import LONGEST_TEXT, cut, name
from traceview.render.json import plain
from traceview.render.lane_view import (
    CAUSE_LOOKS,
    CLASS_LOOKS,
    HOW_TO_GET,
    ClassLook,
    cut_words,
    legend,
    offsets,
)
from traceview.report.model import Report
from traceview.report.standing_out import standing_out

_ESCAPES: Final = str.maketrans(
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
)
_HINT: Final = (
    "Drag to pan; wheel with Ctrl, or after a click here, to zoom. Keys: + and − zoom, ← and → pan, Home shows all,"
    " ↑ and ↓ choose a lane, Tab goes through its slices, Enter opens a device or goes to the gap, Esc leaves."
)


def has_timeline(report: Report) -> bool:
    """Whether there is something to draw: links to places on the timeline lead nowhere otherwise."""
    return report.results.lanes is not None and bool(report.results.lanes.devices)


def timeline(report: Report) -> Markup:
    """The figure, or a sentence how to get it where the report holds no lanes."""
    lanes = report.results.lanes
    if lanes is None or not lanes.devices:
        return _absent(report.skipped.get("lanes"))
    picture = Markup(svg.picture(report, is_alone=False))
    data = Markup(_json(_data(report, lanes)))
    caption = cut_words(lanes)
    return Markup(
        '<figure id="timeline" class="tv" aria-label="Timeline">\n'
        '<figcaption><p class="tv-legend">{legend}</p>'
        '<p class="tv-cut">{cut}</p>'
        '<p class="tv-hint" id="tv-hint" hidden>{hint}</p></figcaption>\n'
        '<div class="tv-static">{picture}</div>\n'
        '<script type="application/json" id="timeline-data">{data}</script>\n'
        "</figure>"
    ).format(
        legend=_legend(legend(lanes)),
        cut=f"Times from the start of the window. A pale slice is covered in part. {caption}".strip(),
        hint=_HINT,
        picture=picture,
        data=data,
    )


def _absent(reason: str | None) -> Markup:
    if reason:
        return Markup('<p id="timeline">No timeline: {}.</p>').format(reason)
    return Markup(
        '<p id="timeline">This report was saved without its timeline; <code>{}</code> draws it.</p>'
    ).format(HOW_TO_GET)


def _legend(groups: Mapping[str, Sequence[ClassLook]]) -> Markup:
    swatch = Markup('<span><i class="{}" style="background:var(--tv-{})">{}</i>{}</span>')
    parts: list[Markup] = []
    for heading, looks in groups.items():
        if heading:
            parts.append(Markup("<span>{}:</span>").format(heading))
        for one in looks:
            class_ = "tv-grey" if one.style in svg.HATCHED else "tv-bright"
            parts.append(swatch.format(class_, one.style, one.letter, one.words))
    return Markup(" ").join(parts)


def _data(report: Report, lanes: Lanes) -> dict[str, Any]:
    begins, span = offsets(lanes)
    hosts = {host.host: place for place, host in enumerate(lanes.hosts)}
    devices = {device.device: place for place, device in enumerate(lanes.devices)}
    chosen = standing_out(report)
    kept = chosen.shown if chosen.others else tuple(devices)
    return {
        "span": span,
        "hosts": [
            {
                "name": name(host.host),
                "offset": begins[host.host],
                "lanes": [_lane(lane) for lane in host.lanes],
            }
            for host in lanes.hosts
        ],
        "devices": [
            {
                # As the links to places write it.
                "key": cut(device.device, LONGEST_TEXT),
                "name": name(device.device),
                "host": hosts[device.host],
                "lanes": [_lane(lane) for lane in device.lanes],
            }
            for device in lanes.devices
        ],
        "folded": [place for device, place in devices.items() if device not in kept],
        "names": [name(one) for one in lanes.names],
        "gaps": [
            [devices[one.place.device], one.place.start_ps, one.place.end_ps, one.number]
            for one in numbered_gaps(report)
            if one.place.device in devices
        ],
        "activities": {key: [one.style, one.letter, one.words] for key, one in CLASS_LOOKS.items()},
        "causes": {key: [one.style, one.letter, one.words] for key, one in CAUSE_LOOKS.items()},
    }


def _lane(lane: Lane) -> dict[str, Any]:
    found: dict[str, Any] = plain(lane)
    if lane.thread is not None:
        found["thread"] = name(lane.thread)
    if lane.resolution_ps:
        found["resolution"] = numbers.time(lane.resolution_ps)
    return found


def _json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.translate(_ESCAPES)
