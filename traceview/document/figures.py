"""Defines the data of small charts: step times, a heat map, the input pipeline, speeds beside their links, aligned
steps, and trends.

They are blocks of a document. A page draws them (`figures_svg`); in text the table of their section has the numbers.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from traceview.document.vocabulary import Look


class Span(Struct, frozen=True):
    """A span of one device on the timeline, in picoseconds from the start of its window.

    `devices`: what else to open there; the span is framed on `device` alone.
    """

    device: str
    start_ps: int
    end_ps: int
    devices: tuple[str, ...] = ()


class StepBar(Struct, frozen=True):
    """The time of one step.

    `look`: the kind of step. `cause`: of a slow step what it has most more of than the median step, None where that is
    not known; `excess_ps`: what a slow step takes longer than the median one, 0 of one that is not slow.
    """

    number: int
    duration_ps: int
    look: Look
    excess_ps: int
    cause: Look | None
    span: Span | None


class StepTimes(Struct, frozen=True):
    """The steps in their order. `lead`: which steps are slow and why, or that they are alike."""

    bars: tuple[StepBar, ...]
    median_ps: int
    lead: str


class HeatMap(Struct, frozen=True):
    """Picoseconds by row and column; None where nothing was measured. `label`: what they are."""

    label: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: tuple[tuple[int | None, ...], ...]


class ChainStage(Struct, frozen=True):
    """A stage: its own work, and how long the next one waited for it, in picoseconds; None where that is not known."""

    name: str
    own_ps: int | None
    awaited_ps: int | None
    is_slowest: bool


class Chain(Struct, frozen=True):
    """The stages of an input pipeline from the source to the model."""

    stages: tuple[ChainStage, ...]


class Speed(Struct, frozen=True):
    """What a link carried, and what it can carry, in bytes per second; None where that is not known."""

    name: str
    bytes_per_second: int
    link_bytes_per_second: int | None


class Speeds(Struct, frozen=True):
    """Speeds beside each other. `label`: what they are."""

    label: str
    rows: tuple[Speed, ...]


class TrendPoint(Struct, frozen=True):
    """A value in a row of values. `label`: what it is of; `level`: the level around it, None where there is none; `mark`: what
    begins with it, empty where nothing does.
    """

    label: str
    value: float
    level: float | None = None
    mark: str = ""


class Trend(Struct, frozen=True):
    """Values in their order, from zero on. `label`: what they are; `kind`: how they are written."""

    label: str
    kind: Literal["time", "number", "share"]
    points: tuple[TrendPoint, ...]


class StepLane(Struct, frozen=True):
    """What one device did in one step: pieces with start and end in picoseconds from the start of the step.

    `note`: stands beside the length of the step. `marked`: keys of the looks whose pieces stand out.
    """

    label: str
    step_ps: int
    pieces: tuple[tuple[int, int, Look], ...]
    note: str = ""
    marked: frozenset[str] = frozenset()


class AlignedSteps(Struct, frozen=True):
    """Steps of several runs below each other, on one scale and from one start. `label`: what they are."""

    label: str
    lanes: tuple[StepLane, ...]


Figure: TypeAlias = StepTimes | HeatMap | Chain | Speeds | AlignedSteps | Trend
