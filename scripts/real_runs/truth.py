"""Computes what a slowdown costs from step times by the clock of the program itself."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

import msgspec
from msgspec import Struct

from scripts.real_runs.step_clock import WINDOW
from scripts.real_runs.table import Statistic

RECORDED: Final = slice(WINDOW[0] - 1, WINDOW[1] - 1)
"""Places in `Block.step_ns`, which begins with the second step, of the steps that a capture keeps: the step before them holds the start of the profiler."""

UNDISTURBED: Final = slice(WINDOW[1] + 3, None)
"""Places of the steps after the recording, when it has been written: 24 steps, which hold whole periods of 3, 4 and 6 steps."""

SURE_RATIO: Final = 0.15
"""Largest difference by the healthy run before and the one after, as a share of the slow step, at which a cost counts as sure."""


class TrueCost(Struct, frozen=True):
    """What a slowdown costs each step of one slow run.

    Attributes:
        cost_ps: Slow step less the healthy steps before and after, picoseconds.
        share: Cost over the slow step.
        spread: How far apart the shares by either healthy run are.
    """

    cost_ps: int
    share: float
    spread: float

    @property
    def is_sure(self) -> bool:
        """Whether both neighbours agree well enough."""
        return self.spread <= SURE_RATIO


class _Measured(Protocol):
    def __call__(self, data: Sequence[int], /) -> float: ...


class Block(Struct, frozen=True):
    """One training run inside a process.

    Attributes:
        is_slow: Whether the slowdown was on.
        step_ns: Lengths of its steps from the second one on, nanoseconds.
        is_advised: Whether the program followed the advice on it.
    """

    is_slow: bool
    step_ns: tuple[int, ...]
    is_advised: bool = False

    def step(self, statistic: Statistic, steps: slice) -> float:
        """Median or mean of these steps, nanoseconds."""
        measure: _Measured = statistics.median if statistic == "median" else statistics.fmean
        return measure(self.step_ns[steps])


def read_blocks(path: Path) -> tuple[Block, ...]:
    """The runs that `step_clock` wrote."""
    return msgspec.json.decode(path.read_bytes(), type=tuple[Block, ...])


def true_costs(blocks: Sequence[Block], statistic: Statistic, steps: slice) -> tuple[TrueCost, ...]:
    """The cost of each slow run by the healthy runs before and after it in the same process, which meet the same load.

    The profiler makes some steps longer than others, so that a share of the recorded steps is another one than without
    it: `steps` says which of the two is meant. Raises `ValueError` unless healthy and slow runs take turns, a healthy one
    first and last.
    """
    turns = [index % 2 == 1 for index in range(len(blocks))]
    if [block.is_slow for block in blocks] != turns or len(blocks) % 2 == 0:
        raise ValueError("healthy and slow runs have to take turns, a healthy one first and last")
    lengths = [block.step(statistic, steps) for block in blocks]
    costs = []
    for before, slow, after in zip(lengths[::2], lengths[1::2], lengths[2::2], strict=False):
        cost = slow - (before + after) / 2
        costs.append(TrueCost(round(cost * 1000), cost / slow, abs(before - after) / slow))
    return tuple(costs)
