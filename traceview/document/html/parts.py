"""Makes the parts of a page: names, sentences, and what the timeline and the bars of the steps are drawn from."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec
from markupsafe import Markup, escape
from msgspec import Struct

from traceview.document import numbers
from traceview.document.figures import (
    Lane,
    Lanes,
    StepBar,
    StepTimes,
    of_host,
    window_offsets,
)
from traceview.document.model import Timeline, anchor
from traceview.document.phrase import Sentence, pieces
from traceview.document.sanitize import sanitize, shortened
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
    """At most about `most` characters of `text`; the middle of a longer one is left out."""
    return shortened(sanitize(text), most)


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
        "folded": [place for device, place in devices.items() if device in timeline.folded],
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


# Step times


MOST_BARS: Final = 200
"""Bars of steps; of more steps a bar is a few of them."""

_MOST_NUMBERS: Final = 20
"""Numbers of steps that have room below the bars."""


class ChartBar(Struct, frozen=True):
    """Steps that are all slow, or none is, as a bar as high as their mean; what slow ones take longer stands out.

    `height`, `excess`: shares of the chart and of the bar. `cause`: of the excess, None of those that are not slow.
    `number`: below the bar, None for most of many.
    """

    count: int
    longest: StepBar
    title: str
    height: float
    excess: float
    cause: Look | None
    number: int | None


def steps_per_bar(figure: StepTimes) -> int:
    """How many steps a bar is."""
    return -(-len(figure.bars) // MOST_BARS)


def bars(figure: StepTimes) -> Iterator[ChartBar]:
    """A bar per step; of many, a bar per few steps in which slow ones take their share of its width."""
    size = steps_per_bar(figure)
    groups = [figure.bars[place : place + size] for place in range(0, len(figure.bars), size)]
    every = -(-len(groups) // _MOST_NUMBERS)
    most_ps = highest_ps(figure)
    for place, group in enumerate(groups):
        number = None if place % every else group[0].number
        for is_slow in (False, True):
            same = [bar for bar in group if bool(bar.excess_ps) == is_slow]
            if same:
                yield _bar(same, most_ps, number)
                number = None


def _bar(same: Sequence[StepBar], most_ps: int, number: int | None) -> ChartBar:
    longest = max(same, key=lambda bar: bar.duration_ps)
    whole_ps, excess_ps = sum(bar.duration_ps for bar in same), sum(bar.excess_ps for bar in same)
    return ChartBar(
        count=len(same),
        longest=longest,
        title=_title(same, longest),
        height=whole_ps / len(same) / most_ps,
        excess=excess_ps / (whole_ps or 1),
        cause=(longest.cause or STATES["unknown"]) if excess_ps else None,
        number=number,
    )


def highest_ps(figure: StepTimes) -> int:
    """The time that is as high as the chart."""
    return max(figure.median_ps, *(bar.duration_ps for bar in figure.bars), 1)


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
