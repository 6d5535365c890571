"""Measures the steps of a training program by the program's own clock, and records some of them with traceview.

A program calls `StepClock.step_ended` after each step and hands its training function to `run_blocks`. The environment
decides what is run:

- `SLOWDOWN`: one letter per training run in this process, `1` with the slowdown, `0` without, `2` with the slowdown and the advice
  on it; `0` by default. Runs in turn (`1 0 1 0`) meet the same noise of the machine.
- `STEP_TIMES`: the file that gets the lengths of the steps, as JSON.
- `RECORDINGS`: the folder that gets a recording of the steps `WINDOW` of each run, `healthy-1`, `slow-1`, `healthy-2` and so on.
- `FRAMEWORK`: what the program trains with, `tensorflow` or `jax`; asked for with `RECORDINGS`.
"""

from __future__ import annotations

import gc
import json
import os
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Final

from traceview.capture.record.capture import Capture
from traceview.capture.record.settings import Settings
from traceview.capture.window.step_window import StepRange

STEPS: Final = 48
WINDOW: Final = (8, 20)
"""The first step that is recorded, and the first that is not."""


class StepClock:
    """Reads the time after each step of one training run.

    Attributes:
        is_advised: Whether the slow run follows the advice of its report.
        ends_ns: Monotonic time at the end of each step, nanoseconds.
    """

    def __init__(self, *, is_advised: bool = False) -> None:
        self.is_advised = is_advised
        self.ends_ns: list[int] = []

    def step_ended(self, batch: int = 0, logs: object = None) -> None:
        """Note the end of a step; a Keras callback passes arguments, which are not used."""
        self.ends_ns.append(time.perf_counter_ns())


class _Recorded(AbstractContextManager[None]):
    """Records the window of a training run, as `traceview capture` does in the process of a script."""

    def __init__(self, folder: Path) -> None:
        settings = Settings(folder, StepRange.of(range(*WINDOW)))
        self._watch = Capture(settings, print, framework=os.environ["FRAMEWORK"])

    def __enter__(self) -> None:
        self._watch.prepare()
        self._watch.hooks.install()

    def __exit__(self, *_: object) -> None:
        self._watch.hooks.remove()
        self._watch.finish("ended")


def run_blocks(train: Callable[[bool, StepClock], None]) -> None:
    """Call `train(is_slow, clock)` once per letter of `SLOWDOWN`, and write the step times."""
    blocks, counts = [], Counter[str]()
    folder = os.environ.get("RECORDINGS")
    for letter in os.environ.get("SLOWDOWN", "0").split():
        is_slow, is_advised = letter != "0", letter == "2"
        clock = StepClock(is_advised=is_advised)
        kind = "advised" if is_advised else "slow" if is_slow else "healthy"
        counts[kind] += 1
        # What earlier runs left behind would make every full garbage collection pause this one.
        gc.collect()
        gc.freeze()
        with _Recorded(Path(folder) / f"{kind}-{counts[kind]}") if folder else nullcontext():
            train(is_slow, clock)
        ends = clock.ends_ns
        # The first step has no end of another one before it.
        lengths = [end - start for start, end in pairwise(ends)]
        blocks.append({"is_slow": is_slow, "is_advised": is_advised, "step_ns": lengths})
    if path := os.environ.get("STEP_TIMES"):
        Path(path).write_text(json.dumps(blocks), encoding="utf-8")
