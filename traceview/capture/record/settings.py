"""Defines what a capture is asked to record."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from traceview.capture.record.destination import run_name
from traceview.capture.window.ranges import StepRange

PARTS: Final = ("nvml", "python", "source")
"""What a capture can do without: samples of the GPUs, samples of Python stacks, lines of ops."""


@dataclass(frozen=True)
class Settings:
    """What to capture.

    `run`: the name of the run, by default that of the cluster, or the time. Raises `UsageError` if it cannot name a folder.
    `without`: those of `PARTS` that are switched off. `step_functions`: names of the functions whose calls are steps, by
    default all that compute gradients. `on_hang_s`: report if no step ends for that many seconds. `launch`: what all processes
    below one command have in common: the process that became the command, a dash, and a random word.
    """

    out: Path
    steps: StepRange
    run: str | None = None
    without: frozenset[str] = frozenset()
    step_functions: tuple[str, ...] = ()
    on_hang_s: float | None = None
    launch: str | None = None

    def __post_init__(self) -> None:
        if self.run is not None:
            run_name(self.run)
