"""Computes what a slowdown costs from step times that a program measured itself, without traceview."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

import msgspec
from msgspec import Struct

from scripts.real_runs.step_clock import WINDOW
from scripts.real_runs.table import Statistic

FIRST_COUNTED_STEP: Final = 12
"""Earlier steps trace, compile and fill buffers. The 24 steps from here on hold whole periods of 3, 4 and 6 steps."""

COUNTED: Final = slice(FIRST_COUNTED_STEP - 1, None)
RECORDED: Final = slice(WINDOW[0] - 1, WINDOW[1] - 1)
"""Places of the steps in `Block.step_ns`: those that count without the profiler, and those that a capture records."""

SURE_RATIO: Final = 0.15
"""Largest spread of the pairs of runs, as a share of the slow step, at which a cost counts as sure."""


class TrueCost(Struct, frozen=True):
    """What a slowdown costs each step.

    Attributes:
        cost_ps: Slow step less healthy step, picoseconds: the middle one of all pairs of runs.
        share: Cost over the slow step: the middle one of all pairs.
        spread: Interquartile range of the shares of the pairs; 0 for a single pair.
    """

    cost_ps: int
    share: float
    spread: float

    @property
    def is_sure(self) -> bool:
        """Whether the pairs agree well enough."""
        return self.spread <= SURE_RATIO


class _Measured(Protocol):
    def __call__(self, data: Sequence[int], /) -> float: ...


class Block(Struct, frozen=True):
    """One training run inside a process.

    Attributes:
        is_slow: Whether the slowdown was on.
        step_ns: Lengths of its steps from the second one on, nanoseconds.
    """

    is_slow: bool
    step_ns: tuple[int, ...]

    def step(self, statistic: Statistic, steps: slice) -> float:
        """Median or mean of these steps, nanoseconds."""
        measure: _Measured = statistics.median if statistic == "median" else statistics.fmean
        return measure(self.step_ns[steps])


def read_blocks(path: Path) -> tuple[Block, ...]:
    """The runs that `step_clock` wrote."""
    return msgspec.json.decode(path.read_bytes(), type=tuple[Block, ...])


def true_cost(blocks: Sequence[Block], statistic: Statistic, steps: slice = COUNTED) -> TrueCost:
    """The cost by pairs of neighbours, a slow run and the healthy one after it, which meet the same load of the machine.

    The profiler makes some steps longer than others, so that a share of the recorded steps is another one than without
    it: `steps` says which of the two is meant.
    """
    slow_blocks, healthy_blocks = blocks[::2], blocks[1::2]
    costs, shares = [], []
    for slow, healthy in zip(slow_blocks, healthy_blocks, strict=True):
        if not slow.is_slow or healthy.is_slow:
            raise ValueError("slow and healthy runs have to take turns")
        slow_ns = slow.step(statistic, steps)
        costs.append(slow_ns - healthy.step(statistic, steps))
        shares.append(costs[-1] / slow_ns)
    cost_ps = round(statistics.median(costs) * 1000)
    return TrueCost(cost_ps, statistics.median(shares), _interquartile_range(shares))


def _interquartile_range(values: Sequence[float]) -> float:
    if len(values) < 2:
        return 0.0
    lower, _, upper = statistics.quantiles(values, n=4, method="inclusive")
    return upper - lower
