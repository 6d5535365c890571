"""Defines documents: what is to be shown, in no format.

A topic describes its section once, as blocks of typed values. The printers (`terminal`, `markdown`, `html`) know
how each type is written and no topic. Where a format cannot show a block, the block says what stands in its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeAlias, TypeVar, get_args

from msgspec import Struct

from traceview.document.figures import Lanes, StepTimes, UtilizationStrips
from traceview.document.figures import Span as Span
from traceview.document.phrase import Phrase, Sentence, Token, phrase
from traceview.document.vocabulary import Look

Quantity: TypeAlias = Literal[
    "bytes",
    "count",
    "flop_rate",
    "flops",
    "number",
    "ordinal",
    "rate",
    "share",
    "signed_time",
    "time",
]
"""How numbers of a column are written; it is aligned at its right end and sorted by value.

`time` and `signed_time` picoseconds, `ordinal` the number of a step or a row, `share` ratios, `rate` bytes
per second, `flops` and `flop_rate` floating-point operations.
"""

Kind: TypeAlias = Quantity | Literal["device", "look", "name", "span", "words"]
"""How the values of a column are written.

`name` recorded text, `words` text of traceview, `device` a device key that leads to the row of the device, `span` a link
into the timeline.
"""


Value: TypeAlias = str | Phrase | int | float | Look | Span | None
"""A cell. None where nothing was measured; a `str` in a numeric column stands as it is, in a column of words it is a
sentence of ours."""


class Column(Struct, frozen=True):
    """A heading and the values below it.

    `priority`: where room is short the highest number goes first; 0 stays as long as it can. `meaning`:
    explains the heading.
    """

    heading: str
    kind: Kind
    values: tuple[Value, ...]
    priority: int = 0
    meaning: str = ""

    @property
    def is_numeric(self) -> bool:
        """Whether it holds numbers."""
        return self.kind in get_args(Quantity)


class Table(Struct, frozen=True):
    """Rows of equal length, the first column names them.

    `label`: what the table shows, for those who cannot see it. `row_count`: rows there are in all, with those that
    are not here; `rest`: the command or the place that has all of them. `anchors`: by row, what links lead to.
    """

    label: str
    columns: tuple[Column, ...]
    row_count: int = 0
    rest: str = ""
    anchors: tuple[str, ...] = ()

    @property
    def shown_count(self) -> int:
        """Rows of the table."""
        return len(self.columns[0].values)

    @property
    def hidden_count(self) -> int:
        """Rows that are not in the table."""
        return max(self.row_count - self.shown_count, 0)

    @property
    def cut(self) -> Remark | None:
        """How many rows are not in the table, and what has them; None where all are."""
        if not self.hidden_count:
            return None
        text = f"{self.hidden_count:,} of {self.row_count:,} rows are not shown"
        if self.rest.startswith("traceview "):
            return Remark(f"{text}; all of them:", self.rest)
        return Remark(f"{text}; all of them: {self.rest}" if self.rest else text)


class Facts(Struct, frozen=True):
    """Short statements that stand beside each other."""

    items: tuple[Sentence, ...]


class Notes(Struct, frozen=True):
    """Sentences, one below the other, each worth reading."""

    items: tuple[Sentence, ...]


class Remark(Struct, frozen=True):
    """How to read what stands above: of minor weight.

    `command`: what to type, behind the text; it is neither shortened nor broken, so that it can be copied.
    """

    text: Sentence
    command: str = ""


class Subheading(Struct, frozen=True):
    """A title inside a section. `remark`: stands beside it."""

    text: Sentence
    remark: Sentence = ""


class Strips(Struct, frozen=True):
    """The activity of each device over time, a character per slice. A page with a timeline does without."""

    strips: UtilizationStrips
    devices: tuple[str, ...]


class Timeline(Struct, frozen=True):
    """The activity of every device and thread over time, to be zoomed. In text the `Strips` stand in its place.

    `lanes`: None where the report holds none. `folded`: the devices that are listed on
    request. `gaps`: the numbered gaps that a slice can lead to. `lines`: by the
    number of a gap, the line of Python that ran in it.
    """

    lanes: Lanes | None
    folded: tuple[str, ...] = ()
    gaps: tuple[tuple[int, Span], ...] = ()
    lines: Mapping[int, str] = {}

    @property
    def drawn(self) -> dict[str, int]:
        """Keys of the devices in the picture, with their places."""
        rows = self.lanes.devices if self.lanes else ()
        return {row.device: place for place, row in enumerate(rows)}


class Finding(Struct, frozen=True):
    """A finding as documents show it.

    `number`: from 1 on, in the order of the report. `cost`: its share of the GPU time, and by how much steps would be
    shorter without it; empty where it costs no time. `action`: the one thing to do first, `advice`: what else. `span`: what
    to look at on the timeline.
    """

    number: int
    code: str
    severity: Look
    title: Phrase
    cost: str
    explanation: Phrase
    evidence: Phrase
    confidence: str
    confidence_reason: Phrase
    action: Phrase
    advice: Phrase
    span: Span | None = None

    @property
    def anchor(self) -> str:
        """The targets of links."""
        return anchor("finding", self.number)

    @property
    def whole_advice(self) -> Phrase:
        """The action, and the rest of the advice."""
        between = (Token(" "),) if self.action and self.advice else ()
        return (*self.action, *between, *self.advice)

    @property
    def facts(self) -> tuple[tuple[str, Sentence], ...]:
        """What stands below the explanation, each with its label."""
        sure = phrase(f"Confidence {self.confidence}: ", self.confidence_reason, ".")
        facts: dict[str, Sentence] = {
            "cost": self.cost,
            "evidence": phrase(self.evidence, ". ", sure) if self.evidence else sure,
            "advice": self.whole_advice,
            "more": f"`traceview explain {self.code}`",
        }
        return tuple((label, text) for label, text in facts.items() if text)


class Findings(Struct, frozen=True):
    """Findings with their explanation, evidence and advice; `hidden_count` more have no room."""

    findings: tuple[Finding, ...]
    hidden_count: int = 0


Block: TypeAlias = Table | Facts | Notes | Remark | Subheading | Strips | Timeline | Findings
"""A part of a section. Text leaves the timeline out."""


class Section(Struct, frozen=True):
    """A part of a document.

    `lead`: its answer in a sentence. `is_folded`: one of many, opened on
    request where a format can do that. `command`: prints it where a document has no room for it.
    """

    id: str
    title: str
    blocks: tuple[Block, ...]
    lead: Sentence = ""
    is_folded: bool = True
    command: str = ""

    @property
    def is_empty(self) -> bool:
        """Whether text shows nothing of it."""
        return not self.lead and all(isinstance(block, Timeline) for block in self.blocks)


class AnatomyPart(Struct, frozen=True):
    """A state of a device in a step: its look, `words` that may name a device, its length and its share."""

    look: Look
    words: str
    duration_ps: int
    ratio: float


class AnatomyRow(Struct, frozen=True):
    """The mean step of a device, or of devices whose steps are alike; the parts sum to it, in the order of the step.

    `label`: names the devices. `step_count`: 0 where the window takes the place of the steps.
    """

    label: str
    devices: tuple[str, ...]
    step_count: int
    step_ps: int
    parts: tuple[AnatomyPart, ...]


class Summary(Struct, frozen=True):
    """The beginning of a document, and all of the first screen of a terminal.

    `captured`: what was recorded, in a few words. `answer`: what is wrong, or that nothing is; `number`: of the finding
    that it is about, 0 without one; `label`: how bad; `action`: the one thing to do. `anatomy`: the mean step of each device by state;
    `anatomy_reason`: why there is none. `compute`: what the compute consists of, where that is most of the time. `step_times`:
    None without steps. `findings`: the first of those that the answer is not about; `hidden_count`: the others. `trust`:
    how far the capture can be trusted; `quality`: what limits it, None where nothing does. `next_command`: shows the
    evidence of the answer, `full_command` all on a terminal, `command` makes the report again.
    """

    run: str
    answer: Sentence
    captured: tuple[Sentence, ...] = ()
    number: int = 0
    label: Look | None = None
    action: Sentence = ""
    anatomy: tuple[AnatomyRow, ...] = ()
    anatomy_reason: Sentence = ""
    compute: tuple[Sentence, ...] = ()
    step_times: StepTimes | None = None
    findings: tuple[Finding, ...] = ()
    hidden_count: int = 0
    quality: Look | None = None
    trust: tuple[Sentence, ...] = ()
    remarks: tuple[Sentence, ...] = ()
    next_command: str = ""
    full_command: str = ""
    command: str = ""


_B = TypeVar("_B", bound=Block)


class Document(Struct, frozen=True):
    """A whole report as it is shown."""

    traceview_version: str
    summary: Summary
    sections: tuple[Section, ...]

    def block(self, kind: type[_B]) -> _B | None:
        """Its first block of a kind."""
        blocks = (block for section in self.sections for block in section.blocks)
        return next((block for block in blocks if isinstance(block, kind)), None)


def anchor(kind: Literal["device", "finding", "gap"], name: object) -> str:
    """The target of links to the row of a device by its key, to a finding or a gap by its number."""
    return f"{kind} {name}"


# Blocks, left out where they would be empty


def table(
    label: str,
    columns: Iterable[Column | None],
    *,
    row_count: int = 0,
    rest: str = "",
    anchors: Sequence[str] = (),
) -> tuple[Table, ...]:
    """A table of the columns that hold anything; nothing without rows."""
    kept = tuple(
        column
        for column in columns
        if column is not None and any(value is not None and value != "" for value in column.values)
    )
    return (Table(label, kept, row_count, rest, tuple(anchors)),) if kept else ()


def facts(*items: Sentence | None) -> tuple[Facts, ...]:
    """The facts that are not empty; nothing without any."""
    kept = tuple(item for item in items if item)
    return (Facts(kept),) if kept else ()


def notes(*items: Sentence | None) -> tuple[Notes, ...]:
    """The sentences that are not empty; nothing without any."""
    kept = tuple(item for item in items if item)
    return (Notes(kept),) if kept else ()


def remarks(*texts: Sentence | None) -> tuple[Remark, ...]:
    """The remarks that are not empty."""
    return tuple(Remark(text) for text in texts if text)


def column(kind: Kind, heading: str, values: Iterable[Value], priority: int = 0) -> Column:
    """A column of these values; `columns.Shown` makes one of the fields of rows."""
    return Column(heading, kind, tuple(values), priority)


def sentence_of(value: Value, text: str) -> Sentence:
    """A cell of a column of words; `text`: what stands there where it holds no sentence."""
    return value if isinstance(value, (str, tuple)) else text


def ratio(part: int | None, whole: int | None) -> float | None:
    """`part` over `whole`; None where either is not known."""
    if part is None or whole is None:
        return None
    return part / whole if whole else 0.0
