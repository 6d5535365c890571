"""Measures the steps of a training program by the program's own clock.

A program calls `StepClock.step_ended` after each step and hands its training function to `run_blocks`. The environment
decides what is run:

- `SLOWDOWN`: one letter per training run in this process, `1` with the slowdown and `0` without; `0` by default. Runs in
  turn (`1 0 1 0`) meet the same noise of the machine.
- `STEP_TIMES`: the file that gets the lengths of the steps, as JSON.
- `JAX_TRACE`: the folder that gets a profile of the steps `WINDOW`, which JAX itself records.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Final

STEPS: Final = 36
WINDOW: Final = (8, 20)
"""The first step that is recorded, and the first that is not."""


class StepClock:
    """Reads the time after each step of one training run.

    Attributes:
        ends_ns: Monotonic time at the end of each step, nanoseconds.
    """

    def __init__(self) -> None:
        self.ends_ns: list[int] = []

    def step_ended(self, batch: int = 0, logs: object = None) -> None:
        """Note the end of a step; a Keras callback passes arguments, which are not used."""
        self.ends_ns.append(time.perf_counter_ns())
        if folder := os.environ.get("JAX_TRACE"):
            self._record(folder)

    def _record(self, folder: str) -> None:
        profiler, (first, last) = import_module("jax.profiler"), WINDOW
        if len(self.ends_ns) == first:
            profiler.start_trace(folder)
        elif len(self.ends_ns) == last:
            profiler.stop_trace()


def run_blocks(train: Callable[[bool, StepClock], None]) -> None:
    """Call `train(is_slow, clock)` once per letter of `SLOWDOWN`, and write the step times."""
    blocks = []
    for letter in os.environ.get("SLOWDOWN", "0").split():
        clock = StepClock()
        train(letter == "1", clock)
        ends = clock.ends_ns
        # The first step has no end of another one before it.
        lengths = [end - start for start, end in pairwise(ends)]
        blocks.append({"is_slow": letter == "1", "step_ns": lengths})
    if path := os.environ.get("STEP_TIMES"):
        Path(path).write_text(json.dumps(blocks), encoding="utf-8")
