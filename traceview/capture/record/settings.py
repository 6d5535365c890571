"""Defines what a capture is asked to record."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from traceview.capture.record.destination import run_name
from traceview.capture.window.ranges import SecondsRange, StepRange


@dataclass(frozen=True)
class Settings:
    """What to capture.

    `run`: the name of the run, by default that of the cluster, or the time. Raises `UsageError` if it cannot name a folder.
    With `seconds`, time decides when to record, and `steps` is `UNDECIDED`. `step_functions`: names of the functions whose
    calls are steps, by default all that compute gradients. `on_hang_s`: report if no step ends for that many seconds.
    `launch`: what all processes below one command have in common: the process that became the command, a dash, and a random
    word.
    """

    out: Path
    steps: StepRange
    is_synchronised: bool = True
    run: str | None = None
    is_nvml_sampled: bool = True
    is_python_sampled: bool = True
    is_source_recorded: bool = True
    seconds: SecondsRange | None = None
    step_functions: tuple[str, ...] = ()
    on_hang_s: float | None = None
    launch: str | None = None

    @property
    def asked(self) -> StepRange | SecondsRange:
        """The range that the user asked for."""
        return self.steps if self.seconds is None else self.seconds

    def __post_init__(self) -> None:
        if self.run is not None:
            run_name(self.run)
