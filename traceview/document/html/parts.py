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
from traceview.document.html import timeline_svg
from traceview.document.model import AnatomyPart, AnatomyRow, Summary, Timeline, gap_anchor
from traceview.document.phrase import Sentence, pieces
from traceview.document.sanitize import encodable, sanitize
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
        return sanitize(encodable(text))
    head = most * 2 // 3
    left = sanitize(encodable(text[:head]))
    right = sanitize(encodable(text[head - most :]))
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


_LETTER_FROM: Final = 0.02
"""Of the longest bar: a part that is shorter has no letter inside it."""
_BAR_CHARACTERS: Final = 72
"""Of bold text in the longest bar on a page of 800 pixels; a part has its words inside where they fit there."""

_LISTED_FROM: Final = 0.005
"""Of the step: shorter parts are in the bar and not in the list."""


def anatomy(rows: Sequence[AnatomyRow]) -> Markup:
    """The bars, as long as the steps beside the longest one."""
    longest = max((row.step_ps for row in rows), default=0) or 1
    whole = "The mean step" if any(row.step_count for row in rows) else "The window"
    joined = "; alike devices share a bar" if any(len(row.devices) > 1 for row in rows) else ""
    return Markup(
        '<h2 class="small" id="anatomy-title">{} of each device{}</h2>\n'
        '<div class="anatomy" id="anatomy">\n{}\n</div>'
    ).format(whole, joined, Markup("\n").join(_row(row, longest) for row in rows))


def _row(row: AnatomyRow, longest: int) -> Markup:
    width = row.step_ps / longest
    listed = [part for part in row.parts if part.ratio >= _LISTED_FROM]
    return Markup(
        '<div class="anatomy-row"><b class="anatomy-name">{}</b>'
        '<span class="anatomy-bar" role="img" aria-label="{}"><span style="width:{:.2f}%">{}</span></span>'
        '<span class="anatomy-time">{}</span><span class="anatomy-parts">{}</span></div>'
    ).format(
        name(row.label),
        cut(", ".join(map(_words, row.parts)), LONGEST_TEXT),
        100 * width,
        Markup("").join(_piece(part, part.ratio * width) for part in row.parts),
        numbers.time(row.step_ps),
        Markup(" ").join(map(_listed, listed)),
    )


def _words(part: AnatomyPart) -> str:
    return f"{part.words} {numbers.time(part.duration_ps)} ({numbers.share(part.ratio)})"


def _piece(part: AnatomyPart, width: float) -> Markup:
    text = part.words if len(part.words) < width * _BAR_CHARACTERS else ""
    if not text and width >= _LETTER_FROM:
        text = _letter(part)
    return Markup('<i class="part {}{}" style="width:{:.3f}%" title="{}">{}</i>').format(
        part.look.style,
        " tv-hatched" if part.look.is_hatched else "",
        100 * part.ratio,
        cut(_words(part), LONGEST_TEXT),
        cut(text, LONGEST_NAME),
    )


def _letter(part: AnatomyPart) -> str:
    """The letter in a bar and in the list below it; the signs of what a device does are for text only."""
    return part.look.letter if part.look.letter.isalpha() else ""


def _listed(part: AnatomyPart) -> Markup:
    swatch = Markup('<i class="part {}{}">{}</i>').format(
        part.look.style, " tv-hatched" if part.look.is_hatched else "", _letter(part)
    )
    return Markup("<span>{}{} <b>{}</b> {}</span>").format(
        swatch,
        escape(cut(part.words, LONGEST_NAME)),
        numbers.time(part.duration_ps),
        numbers.share(part.ratio),
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
        '<script type="text/plain" id="timeline-data">{data}</script>\n'
        "</figure>"
    ).format(
        legend=_legend(legend(lanes)),
        reading=f"Times count from the start of the window. Height: how much of a slice is filled. {merged_sentence(lanes)}".strip(),
        hint=_HINT,
        picture=Markup(timeline_svg.picture(timeline, summary, is_alone=False)),
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
