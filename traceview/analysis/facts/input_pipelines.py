"""Reads the input pipelines of one host: which stages the model waits for, and what the pipelines lack.

The slowest stage is the one with the longest own time among those that the model waits for. Stages that only pass on
what others made (the root, other wrappers, `Prefetch`, the generator of a replica's shard) cannot be it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import filterfalse
from typing import Final

import numpy as np
from msgspec import Struct

from traceview.analysis.facts.selection import Selection, rows_in
from traceview.base.ids import unique_ids
from traceview.base.text import lazy_pattern
from traceview.trace.columns import NONE
from traceview.trace.host.pipeline import (
    GENERATOR,
    PREFETCH,
    WRAPPERS,
    InputStage,
    InputWaits,
    IteratorCalls,
    find_input_waits,
    iterator_calls,
    kind_of,
    path_of,
    shard_rows,
    shards,
    stages_of,
)
from traceview.trace.model import Trace

_WORKS_AHEAD = lazy_pattern(
    r"Prefetch|Parallel|LegacyParallel|MapAndBatch|ParseExample|DataService"
)
_READS = lazy_pattern(r"(?:TFRecord|TextLine|FixedLengthRecord|SSTable|RecordIO|LMDB|Csv)(?:V\d+)?")
_KEEPS = lazy_pattern(r"::\w*(?:Cache|Snapshot)\w*")
_HANDS_ON = lazy_pattern(r"(?:Finite|Forever)?(?:Repeat|Take|Skip)|Rebatch(?:V\d+)?")
_SHUFFLES = lazy_pattern(r"Shuffle(?:AndRepeat)?(?:V\d+)?")
_PASS = lazy_pattern(r"(.*Repeat)\[\d+\]", re.DOTALL)
_FILLING_FACTOR: Final = 2


class HostPipelines(Struct, frozen=True, eq=False):
    """The iterators of one host.

    `stages`: over the window. `whole`: the stages over the whole recording. `shards`: the shard of each pipeline that
    a replica waits in. `is_distributed`: the dataset has shards, even if it is not known for which replica. `pass_count`:
    passes over the data in the window, with those that it holds a part of.
    """

    host: int
    calls: IteratorCalls
    waits: InputWaits
    stages: list[InputStage]
    whole: list[InputStage]
    shards: dict[int, int]
    is_distributed: bool
    pass_count: int

    @property
    def candidates(self) -> list[InputStage]:
        """The stages over the window that may hold up the model."""
        return self._waited_for(self.stages)

    @property
    def slowest(self) -> InputStage | None:
        """The candidate that works longest; None if none of them works."""
        most = max(self.candidates, key=lambda stage: stage.own_ps, default=None)
        return most if most is not None and most.own_ps > 0 else None

    @property
    def missing(self) -> tuple[str, ...]:
        """What the pipeline lacks, by the names of its stages; nothing without names."""
        names = [stage.name for stage in self._waited_for(self.whole)]
        paths = [path_of(name) for name in names]
        readers = [name for name in names if _READS.fullmatch(kind_of(name))]
        missing = []
        # A distributed dataset works ahead by itself, on the threads that fill the shards.
        last = [next(filterfalse(_HANDS_ON.fullmatch, path), PREFETCH) for path in paths]
        if not self.is_distributed and not all(map(_WORKS_AHEAD.match, last)):
            missing.append("prefetch")
        if any("Map" in path for path in paths):
            missing.append("parallel_map")
        if any("Interleave" in path for path in paths) or any(
            "Interleave" not in name for name in readers
        ):
            missing.append("parallel_interleave")
        if readers and not any(_KEEPS.search(name) for name in names):
            missing.append("cache")
        return tuple(missing)

    def fills_a_shuffle(self, stage: InputStage) -> bool:
        """Whether most of what a stage makes stays in the buffer of a shuffle: it is asked twice as often as the shuffle."""
        return any(
            _SHUFFLES.fullmatch(kind_of(other.name))
            and stage.name.startswith(f"{other.name}::")
            and stage.calls >= _FILLING_FACTOR * other.calls
            for other in self.stages
        )

    def _waited_for(self, stages: Sequence[InputStage]) -> list[InputStage]:
        """The stages that may hold up the model, without those that only pass on elements."""
        asked = [stage for stage in stages if stage.blocking or self.is_distributed]
        return [
            stage
            for stage in asked or stages
            if kind_of(stage.name) not in (*WRAPPERS, PREFETCH)
            and not (self.is_distributed and stage.blocking and stage.name.endswith(GENERATOR))
        ]


def pipelines_of(trace: Trace, selection: Selection, host: int) -> HostPipelines:
    """The pipelines of a host, with their stages in its window."""
    columns = trace.host_columns
    calls = iterator_calls(trace, host)
    waits = find_input_waits(trace, host, calls)
    in_window = rows_in(
        columns.start_ps[calls.row], columns.end_ps[calls.row], selection.windows[host]
    )
    asked = waits.pipeline[waits.pipeline != NONE]
    everything = np.arange(calls.row.size)
    return HostPipelines(
        host,
        calls,
        waits,
        stages_of(trace, host, calls, in_window, asked),
        stages_of(trace, host, calls, everything, asked),
        shards(trace, host, calls, waits),
        bool(shard_rows(trace, host).size),
        _passes(map(trace.names.text, unique_ids(columns.name[calls.row[in_window]]).tolist())),
    )


def _passes(names: Iterable[str | None]) -> int:
    """How many passes over the data these calls belong to: a stage that repeats its input numbers them."""
    begun = {found[0]: found[1] for name in names if (found := _PASS.match(name or ""))}
    return max(Counter(begun.values()).values(), default=0)
