"""Measures what advice saves: runs that follow it beside slow and healthy ones, in turns in one process, without a profiler."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Final

from scripts.real_runs.record import STEP_TIMES, run
from scripts.real_runs.table import Program, Statistic
from scripts.real_runs.truth import Block, read_blocks

_TURNS: Final = ("012", "201", "120")
"""Each kind of run comes first, second and last equally often."""

_MEASURED: Final = slice(-36, None)
"""Places in `Block.step_ns` of the steps after the warm-up, which hold whole periods of 3, 4 and 6 steps."""


def saved_share(program: Program, rounds: int, folder: Path) -> float:
    """The part of the cost of a slowdown that its advice saves; `folder` keeps the times."""
    folder.mkdir(parents=True, exist_ok=True)
    run(program, [*chain.from_iterable(_TURNS[number % 3] for number in range(rounds))], folder, {})
    return saved_share_of(read_blocks(folder / STEP_TIMES), program.statistic)


def saved_share_of(blocks: Sequence[Block], statistic: Statistic) -> float:
    """What the steps of the advised runs are shorter by, over the cost of the slowdown.

    Other processes only make steps longer: of each kind of run the step counts that is shorter than three of four, or the mean
    of a run where only some steps have the cost.
    """
    lengths: dict[tuple[bool, bool], list[float]] = {}
    for block in blocks:
        kind = block.is_slow, block.is_advised
        steps = block.step_ns[_MEASURED]
        lengths.setdefault(kind, []).extend(steps if statistic == "median" else (fmean(steps),))
    healthy, slow, advised = (
        sorted(lengths[kind])[len(lengths[kind]) // 4]
        for kind in ((False, False), (True, False), (True, True))
    )
    return (slow - advised) / (slow - healthy)
