"""Draws the parts of a page: names, sentences, the timeline, and small charts as SVG that take their colours from the page."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any, Final
from xml.sax import saxutils

import msgspec
from markupsafe import Markup, escape

from traceview.document import numbers
from traceview.document.figures import (
    Lane,
    Lanes,
    Span,
    StepBar,
    StepTimes,
    of_host,
    window_offsets,
)
from traceview.document.model import Timeline, anchor
from traceview.document.phrase import Sentence, pieces
from traceview.document.sanitize import sanitize
from traceview.document.vocabulary import CLASSES, STATES, STEP_KINDS, Look, thread_name

LONGEST_NAME: Final = 160
"""Characters of a name in a table; the middle of a longer one is left out."""

LONGEST_TEXT: Final = 1200
"""Characters of anything else."""

_SEPARATORS: Final = ("/", "::", "_")


def shown(value: object) -> object:
    """The text that a template writes for a value: it is sanitized and cut; markup of our own stays as it is."""
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


def timeline_data(timeline: Timeline, anchors: Container[str]) -> str:
    """What a script draws the figure from; `anchors`: those on the page, for a slice leads to no other.

    JSON, deflated, in base 64: a fifth of the bytes, and nothing in it is markup.
    """
    assert timeline.lanes is not None
    data = _data(timeline, timeline.lanes, anchors)
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


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
            if span.device in devices and anchor("gap", number) in anchors
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


# Charts


WIDTH: Final = 1040
MOST_BARS: Final = 200
"""Bars of steps; of more steps a bar is a few of them."""

_LEFT: Final = 64.0
_HEIGHT: Final = 132.0
_TOP: Final = 18.0
_LABEL_FROM: Final = 46.0
_LETTER_FROM: Final = 9.0
_DIGIT: Final = 7.0


def height(figure: StepTimes) -> float:
    """How high the picture is."""
    return _TOP + _HEIGHT + (34 if len(figure.bars) > MOST_BARS else 20)


# Step times


def bars(figure: StepTimes) -> Iterator[tuple[Span | None, Markup]]:
    """A bar per step, with the span that it shows; of many, a bar per few steps in which slow ones take their share of it.

    What belongs to no bar has no span.
    """
    for span, drawing in _bars(figure):
        yield span, Markup(drawing)


def _bars(figure: StepTimes) -> Iterator[tuple[Span | None, str]]:
    size = -(-len(figure.bars) // MOST_BARS)
    groups = [figure.bars[place : place + size] for place in range(0, len(figure.bars), size)]
    most = max([figure.median_ps, *(bar.duration_ps for bar in figure.bars)])
    bottom, scale = _TOP + _HEIGHT, _HEIGHT / max(most, 1)
    each = min((WIDTH - _LEFT - 8) / max(len(groups), 1), 90.0)
    digits = max(len(str(bar.number)) for bar in figure.bars)
    every = max(1, -(-int(_DIGIT * digits + 6) // int(max(each, 1))))
    for place, group in enumerate(groups):
        x, width = _LEFT + each * place, max(each - (2 if each > 5 else 0.4), 0.8)
        slow = [bar for bar in group if bar.excess_ps]
        usual = [bar for bar in group if not bar.excess_ps]
        of_usual = width * len(usual) / len(group)
        if usual:
            yield usual[0].span, "".join(_bar(usual, x, of_usual, bottom, scale))
        if slow:
            longest = max(slow, key=lambda bar: bar.duration_ps)
            drawn = "".join(_bar(slow, x + of_usual, width - of_usual, bottom, scale))
            yield longest.span, drawn
        if place % every == 0:
            yield None, _text(x + width / 2, bottom + 13, str(group[0].number), "middle soft")
    line, right = bottom - figure.median_ps * scale, _LEFT + each * len(groups)
    yield None, f'<path class="median" d="M{_LEFT - 4:.1f} {line:.1f}H{right:.1f}"/>'
    yield None, _text(_LEFT - 8, line - 3, "median", "end soft")
    yield None, _text(_LEFT - 8, line + 9, numbers.time(figure.median_ps), "end soft")
    yield None, _text(_LEFT - 8, bottom + 13, "step", "end soft")
    if size > 1:
        words = f"A bar is {size} steps. Slow steps among them take the part of its width that is their share."
        yield None, _text(_LEFT, bottom + 29, words, "soft")


def _bar(
    bars: Sequence[StepBar], x: float, width: float, bottom: float, scale: float
) -> Iterator[str]:
    """Steps that are all slow or none is, as high as their mean; of slow ones what they take longer stands out."""
    longest = max(bars, key=lambda bar: bar.duration_ps)
    height = sum(bar.duration_ps for bar in bars) / len(bars) * scale
    excess = sum(bar.excess_ps for bar in bars) / len(bars) * scale
    yield f"<g><title>{saxutils.escape(_title(bars, longest))}</title>"
    yield _rectangle(x, bottom - height + excess, width, height - excess, longest.look)
    if excess:
        look = longest.cause
        yield _rectangle(x, bottom - height, width, excess, look)
        middle = x + width / 2
        if width >= _LABEL_FROM:
            yield _text(
                middle, bottom - height - 5, numbers.time(longest.duration_ps), "middle strong"
            )
        if look is not None and width >= _LETTER_FROM and excess >= _LETTER_FROM + 2:
            yield _text(middle, bottom - height + excess / 2 + 4, look.letter, "middle on-slice")
    yield "</g>"


def _title(bars: Sequence[StepBar], longest: StepBar) -> str:
    title = f"step {longest.number}: {numbers.time(longest.duration_ps)}"
    if longest.excess_ps:
        why = f", most of it {longest.cause.words}" if longest.cause else ""
        title += f", {numbers.time(longest.excess_ps)} more than the median{why}"
    if longest.look.key != "train":
        title += f"; {longest.look.words}"
    if len(bars) > 1:
        which = "slow steps" if longest.excess_ps else "steps"
        title = f"{len(bars)} {which} of {bars[0].number} to {bars[-1].number}; longest: {title}"
    return title


# Elements


def _rectangle(x: float, y: float, width: float, height: float, look: Look | None) -> str:
    box = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{max(height, 0.5):.1f}"'
    style = look.style if look else "unknown"
    plain = f'<rect style="fill:var(--tv-{style})" {box}/>'
    is_hatched = look is None or look.is_hatched
    return f'{plain}<rect fill="url(#tv-stripes)" {box}/>' if is_hatched else plain


def _text(x: float, y: float, text: str, look: str) -> str:
    class_ = f' class="{look}"' if look else ""
    return f'<text{class_} x="{x:.1f}" y="{y:.1f}">{_clean(text)}</text>' if text else ""


def _clean(text: str) -> str:
    return saxutils.escape(sanitize(text))
