"""Computes what a slowdown costs from step times that a program measured itself, without traceview."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

from msgspec import Struct

from scripts.real_runs.table import Statistic

FIRST_COUNTED_STEP: Final = 12
"""Earlier steps trace, compile and fill buffers. The 24 steps from here on hold whole periods of 3, 4 and 6 steps."""

SURE_RATIO: Final = 0.15
"""Largest spread between pairs of runs, as a share of the slow step, at which a cost counts as measured."""


class TrueCost(Struct, frozen=True):
    """What a slowdown costs each step.

    Attributes:
        cost_ps: Slow step less healthy step, picoseconds: the middle one of all pairs of runs.
        share: Cost over the slow step: the middle one of all pairs.
        spread: Largest less smallest share among the pairs.
    """

    cost_ps: int
    share: float
    spread: float

    @property
    def is_sure(self) -> bool:
        """Whether the pairs agree."""
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

    def step(self, statistic: Statistic) -> float:
        """Median or mean of the counted steps, nanoseconds."""
        measure: _Measured = statistics.median if statistic == "median" else statistics.fmean
        return measure(self.step_ns[FIRST_COUNTED_STEP - 1 :])


def read_blocks(path: Path) -> tuple[Block, ...]:
    """The runs that `step_clock` wrote."""
    rows = json.loads(path.read_text(encoding="utf-8"))
    return tuple(Block(row["is_slow"], tuple(row["step_ns"])) for row in rows)


def true_cost(blocks: Sequence[Block], statistic: Statistic) -> TrueCost:
    """The cost by pairs of neighbours, a slow run and the healthy one after it.

    Neighbours meet the same load of the machine. A share hardly depends on that load, which makes it comparable with
    that of a recording at another time.
    """
    slow_blocks, healthy_blocks = blocks[::2], blocks[1::2]
    costs, shares = [], []
    for slow, healthy in zip(slow_blocks, healthy_blocks, strict=True):
        if not slow.is_slow or healthy.is_slow:
            raise ValueError("slow and healthy runs have to take turns")
        slow_ns = slow.step(statistic)
        costs.append(slow_ns - healthy.step(statistic))
        shares.append(costs[-1] / slow_ns)
    cost_ps = round(statistics.median(costs) * 1000)
    return TrueCost(cost_ps, statistics.median(shares), max(shares) - min(shares))
