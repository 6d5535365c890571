"""Draws the timeline of a document as one picture that needs nothing else: for tickets, print and pages without scripts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final
from xml.sax.saxutils import escape, quoteattr

from msgspec import Struct, structs

from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.figures import (
    LONGEST_LABEL,
    DeviceLanes,
    HostLanes,
    Lane,
    Lanes,
    legend,
    merged_sentence,
    window_offsets,
)
from traceview.document.html.asset_files import colours
from traceview.document.phrase import plain
from traceview.document.sanitize import encodable, sanitize, shortened
from traceview.document.vocabulary import Look, thread_name

WIDTH: Final = 1200
MOST_RECTANGLES: Final = 5_000
"""Of the whole picture: some 150 kB of paths."""
FOLDED_FROM: Final = 9
"""From this many devices on, each is one row: what it did above, what it waited for below."""

_LEFT: Final = 168
_RIGHT: Final = 12
_PLOT: Final = WIDTH - _LEFT - _RIGHT
_LETTER_FROM: Final = 14.0
_LEAST_LETTER: Final = 9.0
_STACKED_FROM: Final = 4.0
_TOUCHING: Final = 0.35
_LOWEST: Final = 0.5
"""Pixels of a cell that is hardly filled."""
_HEIGHTS: Final = {
    "steps": 16,
    "thread": 11,
    "compute": 15,
    "communication": 10,
    "copies": 10,
    "idle": 15,
}
_FOLDED_HEIGHT: Final = 15
_NARROW_HEIGHT: Final = 9
_TICKS: Final = (1, 2, 5)
_STYLE: Final = """
text { font: 12px system-ui, -apple-system, "Segoe UI", Roboto, Arial, sans-serif; fill: var(--tv-ink); }
text.soft, .soft text { fill: var(--tv-soft); font-size: 11px; }
text.head { font-size: 15px; font-weight: 600; }
text.letter { font-size: 9px; fill: var(--tv-slice-ink); text-anchor: middle; }
text.number { font-size: 11px; }
text.middle { text-anchor: middle; }
text.name { font-weight: 600; }
.row { fill: var(--tv-row); }
.ground { fill: var(--tv-ground); }
.line { stroke: var(--tv-soft); stroke-opacity: 0.35; stroke-width: 1; fill: none; }
.hatch { stroke: var(--tv-hatch); stroke-width: 1.4; }
"""

_HATCH: Final = (
    '<defs><pattern id="tv-hatch" width="5" height="5" patternUnits="userSpaceOnUse"'
    ' patternTransform="rotate(45)"><path class="hatch" d="M0 0V5"/></pattern></defs>'
)


def render(document: doc.Document) -> str:
    """The whole file, the same for the same document."""
    timeline = document.block(doc.Timeline) or doc.Timeline(None)
    drawn = picture(timeline, document.summary, is_alone=True)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{drawn}\n'


def picture(timeline: doc.Timeline, summary: doc.Summary, *, is_alone: bool) -> str:
    """The `svg` element; alone it brings its colours and its heading, on a page it takes those of the page."""
    canvas = _Canvas(summary, is_alone=is_alone)
    if timeline.lanes is None or not timeline.lanes.devices:
        canvas.sentence(f"No timeline: {timeline.reason}")
        return canvas.svg("No timeline.")
    canvas.draw(timeline.lanes)
    return canvas.svg(merged_sentence(timeline.lanes))


class _Rectangle(Struct, frozen=True):
    """A piece of a lane."""

    left: float
    right: float
    top: float
    height: float
    look: Look


class _Canvas:
    """A picture that grows downwards: what lies behind the slices, the slices, and what lies before them."""

    def __init__(self, summary: doc.Summary, *, is_alone: bool) -> None:
        self._summary = summary
        self._is_alone = is_alone
        self._y = 10.0
        self._behind: list[str] = []
        self._before: list[str] = []
        self._rectangles: list[_Rectangle] = []
        if is_alone:
            self._y = 26.0
            self._text(12, self._y, _fitting(plain(summary.answer), 150), "head")
            self._y += 18
            self._text(12, self._y, _fitting(f"run {summary.run}", 170), "soft")
            self._y += 12

    def sentence(self, text: str) -> None:
        """One line where there is nothing to draw."""
        self._y += 18
        self._text(12, self._y, _fitting(text, 160))
        self._y += 14

    def draw(self, lanes: Lanes) -> None:
        """Legend, axis, and the lanes of all hosts with their devices."""
        begin_ps, span = window_offsets(lanes)
        scale = _PLOT / max(span, 1)
        self._legend(legend(lanes))
        self._axis(span)
        top = self._y
        rows = sum(1 for _ in lanes.lanes)
        least = max(1.0, _PLOT * rows / MOST_RECTANGLES)
        is_folded = len(lanes.devices) >= FOLDED_FROM
        for host in lanes.hosts:
            left = _LEFT + begin_ps[host.host] * scale
            if len(lanes.hosts) > 1:
                self._y += 16
                self._text(12, self._y - 3, _fitting(host.host, 60), "name")
            self._of_host(host, left, scale, least, are_steps=True)
            for device in (row for row in lanes.devices if row.host == host.host):
                if is_folded:
                    height = _FOLDED_HEIGHT if len(lanes.devices) <= 64 else _NARROW_HEIGHT
                    self._folded(device, left, scale, least, height)
                else:
                    self._open(device, left, scale, least)
            self._of_host(host, left, scale, least, are_steps=False)
        self._gridlines(span, top)
        merged = merged_sentence(lanes)
        if self._is_alone and merged:
            self._y += 16
            self._text(12, self._y, _fitting(merged, 190), "soft")
        self._y += 10

    def svg(self, description: str) -> str:
        """The element with all that was drawn."""
        height = round(self._y + 4)
        style = f"{colours()}{_STYLE}" if self._is_alone else _scoped(_STYLE)
        title = f"Timeline of run {self._summary.run}"
        about = f"{plain(self._summary.answer)} {description}"
        opening = (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="tv-picture"'
            f' viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
            f' role="img" aria-labelledby="tv-title" aria-describedby="tv-about">'
        )
        parts = (
            opening,
            f'<title id="tv-title">{_clean(title)}</title>',
            f'<desc id="tv-about">{_clean(about)}</desc>',
            f"<style>{style}</style>",
            _HATCH,
            f'<rect class="ground" width="{WIDTH}" height="{height}"/>',
            *self._behind,
            *_paths(self._rectangles),
            *self._before,
            *self._letters(),
            "</svg>",
        )
        return "\n".join(parts)

    # Parts of the picture

    def _legend(self, groups: Mapping[str, Sequence[Look]]) -> None:
        x, self._y = 12.0, self._y + 8
        for heading, looks in groups.items():
            if heading:
                self._text(x, self._y + 9, f"{heading}:", "soft")
                x += 12 + 6 * len(heading)
            for look in looks:
                words = f"{look.letter} {look.words}" if look.letter else look.words
                width = 26 + 6.4 * len(words)
                if x + width > WIDTH - 12:
                    x, self._y = 12.0, self._y + 17
                self._before.append(
                    f'<rect x="{x:.0f}" y="{self._y - 1:.0f}" width="11" height="11" rx="2"'
                    f' style="fill:var(--tv-{look.style})"/>'
                )
                self._text(x + 16, self._y + 9, words, "soft")
                x += width
        self._y += 34

    def _axis(self, span: int) -> None:
        for moment in ticks(span):
            x = _LEFT + _PLOT * moment / max(span, 1)
            self._text(x, self._y - 6, numbers.time(moment) if moment else "0", "soft middle")

    def _gridlines(self, span: int, top: float) -> None:
        for moment in ticks(span):
            x = _LEFT + _PLOT * moment / max(span, 1)
            self._behind.append(f'<path class="line" d="M{x:.1f} {top - 3:.0f}V{self._y:.0f}"/>')

    def _of_host(
        self, host: HostLanes, left: float, scale: float, least: float, *, are_steps: bool
    ) -> None:
        """The steps of a host above its devices, or its threads below them."""
        for lane in (lane for lane in host.lanes if (lane.kind == "steps") == are_steps):
            height = _HEIGHTS[lane.kind]
            name = (
                "steps"
                if lane.kind == "steps"
                else shortened(thread_name(lane.thread) or "thread", LONGEST_LABEL)
            )
            self._row(name, height, is_head=False)
            self._add(lane, left, scale, least, self._y, height)
            if lane.kind == "steps":
                self._numbers(lane, left, scale)
            self._y += height + 2
        self._y += 5

    def _open(self, device: DeviceLanes, left: float, scale: float, least: float) -> None:
        if [lane.kind for lane in device.lanes] == ["idle"]:
            self._folded(device, left, scale, least, _FOLDED_HEIGHT)
            self._y += 3
            return
        self._y += 14
        self._text(12, self._y - 3, _fitting(device.device, 60), "name")
        for lane in device.lanes:
            height = _HEIGHTS[lane.kind]
            self._row(lane.kind, height, is_head=False)
            self._add(lane, left, scale, least, self._y, height)
            self._y += height + 2
        self._y += 4

    def _folded(
        self, device: DeviceLanes, left: float, scale: float, least: float, height: float
    ) -> None:
        self._row(shortened(device.device, LONGEST_LABEL), height, is_head=True)
        upper = 0.0 if len(device.lanes) == 1 else height * 0.6
        # What is worth most is painted last.
        for lane in reversed(device.lanes):
            is_idle = lane.kind == "idle"
            top, part = (self._y + upper, height - upper) if is_idle else (self._y, upper)
            self._add(lane, left, scale, least, top, part)
        self._y += height + 2

    def _row(self, name: str, height: float, *, is_head: bool) -> None:
        self._behind.append(
            f'<rect class="row" x="{_LEFT}" y="{self._y:.1f}" width="{_PLOT}" height="{height:.1f}"/>'
        )
        look = "name" if is_head else "soft"
        self._text(12 if is_head else 22, self._y + height / 2 + 4, name, look)

    def _numbers(self, lane: Lane, left: float, scale: float) -> None:
        free = 0.0
        for piece in lane.slices:
            begin, end = left + piece.start_ps * scale, left + piece.end_ps * scale
            if end - begin > 3:
                self._before.append(
                    f'<path class="line" d="M{begin:.1f} {self._y:.0f}v{_HEIGHTS["steps"]}"/>'
                )
            text = str(piece.name)
            if piece.name >= 0 and end - begin > 7 * len(text) + 4 and begin >= free:
                self._text((begin + end) / 2, self._y + 12, text, "letter number")
                free = end

    def _add(
        self, lane: Lane, left: float, scale: float, least: float, top: float, height: float
    ) -> None:
        for cell in _cells(lane, left, scale, least):
            covered = sum(cell.class_ps.values())
            if not covered:
                continue
            shown = sorted(cell.class_ps.items(), key=lambda part: -part[1])
            if cell.right - cell.left < _STACKED_FROM:
                shown = shown[:1]
            # How high a cell is filled says how much of it is covered.
            filled = max(height * min(covered / cell.length_ps, 1.0), _LOWEST)
            whole, y = sum(part for _, part in shown), top + height - filled
            for class_, part in shown:
                share = filled * part / whole
                self._rectangles.append(
                    _Rectangle(cell.left, cell.right, y, share, lane.look_of(class_))
                )
                y += share

    def _letters(self) -> Iterator[str]:
        for piece in self._rectangles:
            letter = piece.look.letter
            if (
                letter
                and piece.right - piece.left >= _LETTER_FROM
                and piece.height >= _LEAST_LETTER
            ):
                x, y = (piece.left + piece.right) / 2, piece.top + piece.height / 2 + 3.2
                yield f'<text class="letter" x="{x:.1f}" y="{y:.1f}">{escape(letter)}</text>'

    def _text(self, x: float, y: float, text: str, look: str = "") -> None:
        class_ = f" class={quoteattr(look)}" if look else ""
        self._before.append(f'<text{class_} x="{x:.1f}" y="{y:.1f}">{_clean(text)}</text>')


def ticks(span: int) -> list[int]:
    """Round moments from 0 to `span` picoseconds, at most eleven."""
    if span <= 0:
        return [0]
    power = 1
    while True:
        for factor in _TICKS:
            if span // (factor * power) <= 10:
                return list(range(0, span + 1, factor * power))
        power *= 10


class _Cell(Struct, frozen=True):
    """A piece of a lane between two edges on the picture, the picoseconds between them, and what each class covers."""

    left: float
    right: float
    length_ps: int
    class_ps: dict[str, int]


def _cells(lane: Lane, left: float, scale: float, least: float) -> Iterator[_Cell]:
    """The slices of a lane; those that fit in `least` pixels together are one cell."""
    begin = end = 0
    sums: dict[str, int] = {}

    def cell() -> _Cell:
        right = max(end * scale, begin * scale + 0.5)
        return _Cell(left + begin * scale, left + right, end - begin, sums)

    for piece in lane.slices:
        if sums and (piece.end_ps - begin) * scale <= least:
            for class_, part in piece.class_ps.items():
                sums[class_] = sums.get(class_, 0) + part
            end = piece.end_ps
            continue
        if sums:
            yield cell()
        begin, end, sums = piece.start_ps, piece.end_ps, dict(piece.class_ps)
    if sums:
        yield cell()


def _paths(rectangles: Iterable[_Rectangle]) -> Iterator[str]:
    """One path per look, in the order in which they are painted first."""
    groups: dict[Look, list[_Rectangle]] = {}
    for rectangle in rectangles:
        groups.setdefault(rectangle.look, []).append(rectangle)
    for look, group in groups.items():
        path = "".join(map(_outline, _joined(group)))
        yield f'<path style="fill:var(--tv-{look.style})" d="{path}"/>'
        if look.is_hatched:
            yield f'<path fill="url(#tv-hatch)" d="{path}"/>'


def _joined(rectangles: Sequence[_Rectangle]) -> Iterator[_Rectangle]:
    """Neighbours that touch on the picture as one."""
    last = rectangles[0]
    for piece in rectangles[1:]:
        is_level = (piece.top, piece.height) == (last.top, last.height)
        if is_level and 0 <= piece.left - last.right < _TOUCHING:
            last = structs.replace(last, right=piece.right)
        else:
            yield last
            last = piece
    yield last


def _outline(piece: _Rectangle) -> str:
    width, height = _short(piece.right - piece.left), _short(piece.height)
    return f"M{_short(piece.left)} {_short(piece.top)}h{width}v{height}h-{width}z"


def _short(number: float) -> str:
    return f"{max(number, 0.1):.1f}".removesuffix(".0")


def _scoped(style: str) -> str:
    """The rules for this picture alone: on a page there are other rows and lines."""
    return "".join(
        ", ".join(f".tv-picture {part.strip()}" for part in line.partition("{")[0].split(","))
        + line[line.index("{") :]
        for line in style.splitlines()
        if "{" in line
    )


def _fitting(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _clean(text: str) -> str:
    return escape(sanitize(encodable(text)))
