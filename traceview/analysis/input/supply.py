"""Judges whether a pipeline makes batches as fast as the model takes them.

The slowest stage says how much of the window it works. The prefetch buffers between it and the model say whether that
is too slow: a model that takes faster than the pipeline makes meets empty ones. Only the fill of `Prefetch` counts;
parallel stages record calls that still run as elements.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct

from traceview.intervals import BoolArray, Int64Array
from traceview.trace.model import Trace
from traceview.trace.pipeline import (
    PREFETCH,
    InputStage,
    IteratorCalls,
    kind_of,
    requests_of_buffer,
)


class Supply(Struct, frozen=True):
    """What a pipeline delivers.

    `stage`: the stage that works longest. `work_ratio`: its own time over the window. `empty_step_ratio`: the share of
    the used steps in which a request met an empty buffer, of the buffer for which that is least; None without a buffer.
    """

    stage: InputStage
    work_ratio: float
    empty_step_ratio: float | None


def supply_of(
    trace: Trace,
    calls: IteratorCalls,
    blocking: Int64Array,
    stage: InputStage,
    window_ps: int,
    bounds: tuple[Sequence[int], Sequence[int]],
) -> Supply:
    """The supply of the pipeline whose slowest stage is given.

    `blocking`: numbers of the pipelines that the model waits for. `bounds`: starts and ends of the used steps, or of
    the window where there are none.
    """
    ratios = [
        ratio
        for chosen in _buffers(calls, np.isin(calls.pipeline, blocking), stage)
        if (ratio := _empty_step_ratio(*requests_of_buffer(trace, calls, chosen), *bounds))
        is not None
    ]
    return Supply(stage, stage.own_ps / window_ps if window_ps else 0.0, min(ratios, default=None))


def _buffers(calls: IteratorCalls, blocks: BoolArray, stage: InputStage) -> Iterator[Int64Array]:
    """The calls of each prefetch stage between a stage and the model."""
    for number, name in enumerate(calls.stage_names):
        if kind_of(name) != PREFETCH:
            continue
        is_stage = calls.stage == number
        if stage.name.startswith(f"{name}::"):
            yield np.flatnonzero(is_stage & (blocks == stage.blocking))
        if not stage.blocking:
            # What fills the shards of a distributed dataset is followed by the pipelines of the replicas.
            yield np.flatnonzero(is_stage & blocks)


def _empty_step_ratio(
    begun: Int64Array, is_empty: BoolArray, start: Sequence[int], end: Sequence[int]
) -> float | None:
    """The share of the steps with a request in which one met an empty buffer; None without a request."""
    asked = [(begun >= first) & (begun < last) for first, last in zip(start, end, strict=True)]
    empty = [bool(is_empty[inside].any()) for inside in asked if inside.any()]
    return sum(empty) / len(empty) if empty else None
