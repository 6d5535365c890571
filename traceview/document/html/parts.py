"""Writes parts of the page: text on one line, the mean step of each device, and the figure of the timeline."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from markupsafe import Markup, escape

from traceview.document import numbers
from traceview.document.figures import Lane, Lanes, legend, merged_sentence, of_host, window_offsets
from traceview.document.model import Timeline, gap_anchor
from traceview.document.phrase import Sentence, pieces
from traceview.document.sanitize import sanitize
from traceview.document.vocabulary import CLASSES, STATES, STEP_KINDS, Look, thread_name

LONGEST_NAME: Final = 160
"""Characters of a name in a table; the middle of a longer one is left out."""

LONGEST_TEXT: Final = 1200
"""Characters of anything else."""

_SEPARATORS: Final = ("/", "::", "_")


def shown(value: object) -> object:
    """What a template writes for a value: text is sanitized and cut; markup of our own stays as it is."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return cut(value, LONGEST_TEXT)


def cut(text: str, most: int) -> str:
    """At most `most` characters of `text`, from both ends, with the length of the whole stated."""
    if len(text) <= most:
        return sanitize(text)
    head = most * 2 // 3
    left = sanitize(text[:head])
    right = sanitize(text[head - most :])
    return f"{left}…{right} ({numbers.plural(len(text), 'character')})"


_TWO_LINES_FROM: Final = 36
"""Characters of a name from which on it takes two lines: its last part below the rest."""


def name(text: str) -> Markup:
    """A recorded name for a cell: broken after its separators, a long one on two lines; what is copied stays the same."""
    written = cut(text, LONGEST_NAME)
    if len(written) < _TWO_LINES_FROM:
        return _breakable(written)
    middle = max(written.rfind(separator, 0, -8) + len(separator) for separator in _SEPARATORS)
    middle = middle if middle > len(written) // 5 else len(written) // 2
    return Markup('<span class="lines" title="{}"><span>{}</span><span>{}</span></span>').format(
        written, written[:middle], written[middle:]
    )


def _breakable(text: str) -> Markup:
    written = escape(text)
    for separator in _SEPARATORS:
        written = written.replace(separator, Markup(f"{separator}<wbr>"))
    return written


def prose(sentence: Sentence) -> Markup:
    """A sentence; its code and the recorded names in it are set as code."""
    code = Markup("<code>{}</code>")
    return Markup().join(
        code.format(cut(piece.text, LONGEST_TEXT))
        if piece.kind in ("code", "name")
        else escape(cut(piece.text, LONGEST_TEXT))
        for piece in pieces(sentence)
    )


_HINT: Final = (
    "Drag to pan; to zoom, turn the wheel with Ctrl, or after a click here. Keys: ↑ and ↓ choose a lane, ← and → its "
    "slices, with Shift they pan; + and − zoom, Home shows all, Enter opens a device or shows the gap, Esc goes back."
)


def figure(timeline: Timeline, anchors: Container[str]) -> Markup:
    """The figure, or why there is none. `anchors`: those on the page; a slice leads to no other."""
    lanes = timeline.lanes
    if lanes is None or not lanes.devices:
        return Markup('<p id="timeline">No timeline: {}.</p>').format(prose(timeline.reason))
    return Markup(
        '<figure id="timeline" class="tv" aria-label="Timeline">\n'
        '<figcaption><p class="tv-legend">{legend}</p>'
        '<p class="tv-cut">{reading}</p>'
        '<p class="tv-hint" id="tv-hint" hidden>{hint}</p></figcaption>\n'
        '<script type="text/plain" id="timeline-data">{data}</script>\n'
        "</figure>"
    ).format(
        legend=_legend(legend(lanes)),
        reading=f"Times count from the start of the window. Height: how much of a slice is filled. {merged_sentence(lanes)}".strip(),
        hint=_HINT,
        data=_deflated(_data(timeline, lanes, anchors)),
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


def _deflated(value: Any) -> str:
    """The data as JSON, deflated, in base 64: a fifth of the bytes, and nothing in it is markup."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()
