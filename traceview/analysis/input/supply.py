"""Judges whether a pipeline makes batches as fast as the model takes them.

The slowest stage says how much of the window it works. The prefetch buffers between it and the model say whether that
is too slow: a model that takes faster than the pipeline makes meets empty ones. Only the fill of `Prefetch` counts;
parallel stages record calls that still run as elements.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct

from traceview.ids import is_in
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
    `empty_wait_ratio`: the share of the wait in these steps; None without a buffer or a wait.
    """

    stage: InputStage
    work_ratio: float
    empty_step_ratio: float | None
    empty_wait_ratio: float | None


def supply_of(
    trace: Trace,
    calls: IteratorCalls,
    blocking: Int64Array,
    stage: InputStage,
    window_ps: int,
    bounds: tuple[Sequence[int], Sequence[int]],
    wait_ps: Sequence[int],
) -> Supply:
    """The supply of the pipeline whose slowest stage is given.

    `blocking`: numbers of the pipelines that the model waits for. `bounds`: starts and ends of the used steps, or of
    the window where there are none. `wait_ps`: the wait of each used step; empty where it is not known.
    """
    met = [
        _meets_empty(*requests_of_buffer(trace, calls, chosen), *bounds)
        for chosen in _buffers(calls, is_in(calls.pipeline, blocking), stage)
    ]
    asked = [empty for empty in met if any(is_empty is not None for is_empty in empty)]
    return Supply(
        stage,
        stage.own_ps / window_ps if window_ps else 0.0,
        min((_share(empty, [1] * len(empty)) or 0.0 for empty in asked), default=None),
        min(
            (ratio for empty in asked if (ratio := _share(empty, wait_ps)) is not None),
            default=None,
        ),
    )


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


def _meets_empty(
    begun: Int64Array, is_empty: BoolArray, start: Sequence[int], end: Sequence[int]
) -> list[bool | None]:
    """Whether a request in each step met an empty buffer; None where none was made."""
    asked = [(begun >= first) & (begun < last) for first, last in zip(start, end, strict=True)]
    return [bool(is_empty[inside].any()) if inside.any() else None for inside in asked]


def _share(is_empty: Sequence[bool | None], weights: Sequence[int]) -> float | None:
    """The share of the steps that met an empty buffer, by a weight; None without any weight."""
    if len(weights) != len(is_empty):
        return None
    known = [pair for pair in zip(is_empty, weights, strict=True) if pair[0] is not None]
    total = sum(weight for _, weight in known)
    return sum(weight for empty, weight in known if empty) / total if total else None
