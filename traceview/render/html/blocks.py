"""What is a section of the page made of? Facts, sentences and tables, with ready strings in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Protocol, TypeAlias, TypeVar

from traceview.render import numbers
from traceview.render.html.places import NumberedGap, Place
from traceview.render.html.shown import name
from traceview.render.ops import command
from traceview.report.model import Report

FILTER_FROM: Final = 10
"""A table with so many rows has an input to filter them."""

LONG_FROM: Final = 25
"""A table with so many rows has a height of its own."""

_WIDEST_TEXT: Final = 44
"""Characters after which the text of a cell may be broken."""


class _OfDevice(Protocol):
    """What a result says of one device."""

    @property
    def device(self) -> str: ...


_Row = TypeVar("_Row", bound=_OfDevice)


@dataclass(frozen=True)
class View:
    """A report, and what its page can show of it.

    `most_rows`: of one table. `gaps`: those with a row. `device_ids`: ids of the rows that devices have, by key,
    in their order.
    `drawn`: keys of the devices that the timeline draws.
    """

    report: Report
    most_rows: int
    gaps: tuple[NumberedGap, ...]
    device_ids: dict[str, str]
    drawn: frozenset[str]

    def command(self, name: str) -> str:
        """What to type for all rows of a table."""
        return command(self.report.source, name)

    def in_order(self, rows: Sequence[_Row]) -> list[_Row]:
        """Those of the rows that fit, in the order that devices have on the page."""
        ranks = {device: rank for rank, device in enumerate(self.device_ids)}
        ordered = sorted(rows, key=lambda row: ranks.get(row.device, len(ranks)))
        return ordered[: self.most_rows]

    def shown_place(self, place: Place | None) -> Place | None:
        """The place, if the timeline draws its device."""
        return place if place is not None and place.device in self.drawn else None


@dataclass(frozen=True)
class Part:
    """A piece of a bar: `key` says how it looks, `text` what it is; `ratio` of the whole bar."""

    key: str
    text: str
    ratio: float


@dataclass(frozen=True)
class Cell:
    """One cell of a table.

    `value`: what rows are sorted by where the text would not do. `href`: what the text leads to. `links`: more
    of that, text and target. `place`: what a link shows on the timeline. `look`: `name`, or a word that has a
    colour. `parts`: a bar instead of a text.
    """

    text: str = ""
    value: int | float | None = None
    href: str = ""
    links: tuple[tuple[str, str], ...] = ()
    place: Place | None = None
    look: str = ""
    parts: tuple[Part, ...] = ()

    @property
    def sort_key(self) -> str:
        """The value as the page holds it: more digits of a ratio than it shows, and whole numbers whole."""
        return f"{self.value:.6g}" if isinstance(self.value, float) else str(self.value)

    @property
    def is_absent(self) -> bool:
        """Whether there is nothing to read in it."""
        has_more = self.links or self.place or self.parts
        return self.text in ("", numbers.ABSENT) and not has_more


@dataclass(frozen=True)
class Column:
    """A heading and the cells below it. `is_number`: aligned to the right. `meaning`: of the heading."""

    heading: str
    cells: tuple[Cell, ...]
    is_number: bool = False
    meaning: str = ""

    @property
    def least_width(self) -> int:
        """Characters that a column of text should not be narrower than; 0 where that is left to the table."""
        longest = max((len(cell.text) for cell in self.cells), default=0)
        return 0 if self.is_number else min(longest, _WIDEST_TEXT)


@dataclass(frozen=True)
class Table:
    """Rows of equal length, the first cell of each its name.

    `label`: what the table shows, for those who do not see it. `row_count`: rows there are in all; `rest`:
    where those are that have no row here. `legend`: the parts of its bars.
    """

    kind: ClassVar = "table"
    label: str
    columns: tuple[Column, ...]
    row_ids: tuple[str, ...] = ()
    row_count: int = 0
    rest: str = ""
    legend: tuple[Part, ...] = ()

    @property
    def shown_count(self) -> int:
        """Rows of the table."""
        return len(self.columns[0].cells)

    @property
    def left_count(self) -> int:
        """Rows that are not shown."""
        return max(self.row_count - self.shown_count, 0)

    @property
    def is_long(self) -> bool:
        """Whether its rows scroll below its headings, so that the page stays one to find one's way in."""
        return self.shown_count >= LONG_FROM

    @property
    def has_filter(self) -> bool:
        """Whether it is long enough to look for rows in it."""
        return self.shown_count >= FILTER_FROM


@dataclass(frozen=True)
class Facts:
    """Short statements that stand beside each other."""

    kind: ClassVar = "facts"
    items: tuple[str, ...]


@dataclass(frozen=True)
class Notes:
    """Sentences, one below the other."""

    kind: ClassVar = "notes"
    items: tuple[str, ...]


@dataclass(frozen=True)
class Subheading:
    """A title inside a section."""

    kind: ClassVar = "subheading"
    text: str


Block: TypeAlias = Table | Facts | Notes | Subheading


@dataclass(frozen=True)
class Section:
    """A part of the page. `lead`: its answer in a sentence. `terms`: words of the definitions that it uses."""

    id: str
    title: str
    blocks: tuple[Block, ...]
    lead: str = ""
    terms: tuple[str, ...] = ()


Build: TypeAlias = Callable[[View], "Section | None"]


def table(
    label: str,
    columns: Iterable[Column],
    *,
    row_ids: Sequence[str] = (),
    row_count: int = 0,
    rest: str = "",
    legend: Sequence[Part] = (),
) -> list[Table]:
    """A table of the columns in which anything stands; nothing without rows."""
    kept = tuple(one for one in columns if any(not cell.is_absent for cell in one.cells))
    if not kept:
        return []
    return [Table(label, kept, tuple(row_ids), row_count, rest, tuple(legend))]


def facts(*items: str) -> list[Facts]:
    """Those that are not empty; nothing without any."""
    kept = tuple(item for item in items if item)
    return [Facts(kept)] if kept else []


def notes(items: Iterable[str]) -> list[Notes]:
    """Those that are not empty; nothing without any."""
    kept = tuple(item for item in items if item)
    return [Notes(kept)] if kept else []


def devices(view: View, keys: Iterable[str | None], heading: str = "device") -> Column:
    """Names of devices, which lead to their rows."""
    return Column(heading, tuple(device_cell(view, key) for key in keys))


def device_cell(view: View, key: str | None) -> Cell:
    """The name of a device."""
    target = view.device_ids.get(key or "")
    return Cell(name(key), href=f"#{target}" if target else "", look="name")


def names(heading: str, texts: Iterable[str | None]) -> Column:
    """Recorded names."""
    return Column(heading, tuple(Cell(name(text), look="name") for text in texts))


def words(heading: str, texts: Iterable[str]) -> Column:
    """Words of our own, or sentences."""
    return Column(heading, tuple(Cell(text) for text in texts))


def numeric(
    heading: str,
    values: Iterable[float | None],
    told: Callable[[float], str],
    meaning: str = "",
) -> Column:
    """Numbers, written by `told`, sorted as they are."""
    cells = tuple(
        Cell(numbers.ABSENT) if value is None else Cell(told(value), value) for value in values
    )
    return Column(heading, cells, is_number=True, meaning=meaning)


def times(heading: str, values: Iterable[int | None], meaning: str = "") -> Column:
    """Picoseconds."""
    return numeric(heading, values, numbers.time, meaning)


def shares(heading: str, values: Iterable[float | None], meaning: str = "") -> Column:
    """Ratios."""
    return numeric(heading, values, numbers.share, meaning)


def counts(heading: str, values: Iterable[int | None], meaning: str = "") -> Column:
    """Numbers of things."""
    return numeric(heading, values, lambda value: numbers.count(int(value)), meaning)


def sizes(heading: str, values: Iterable[int | None], meaning: str = "") -> Column:
    """Bytes."""
    return numeric(heading, values, numbers.size, meaning)


def places(view: View, found: Iterable[Place | None]) -> Column:
    """Links that show a span on the timeline; empty where it is not drawn."""
    return Column("", tuple(Cell(place=view.shown_place(one)) for one in found))


def ratio(part: int | None, whole: int | None) -> float | None:
    """`part` over `whole`; None where either is not known."""
    if part is None or whole is None:
        return None
    return part / whole if whole else 0.0
