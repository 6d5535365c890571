"""Compares the step time of a run with the runs before it, as every comparison of runs does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from traceview.comparison.difference import Level, RunSpread, step_change
from traceview.document import numbers

LEAST_RATIO: Final = 0.02
LEAST_RATIO_OF_STEPS: Final = 0.05
"""Where steps alone show the noise, and not how much runs differ. Both limits are choices of ours."""

_TOO_NOISY_RATIO: Final = 0.5


class StepChange(Struct, frozen=True):
    """The step time against that of `run_count` runs before: `ratio` more, of which `noise_ratio` says nothing."""

    ratio: float
    noise_ratio: float
    run_count: int
    is_beyond_noise: bool

    @property
    def text(self) -> str:
        """The change in words."""
        before = "the run before" if self.run_count == 1 else f"the last {self.run_count} runs"
        if not self.is_beyond_noise and self.noise_ratio >= _TOO_NOISY_RATIO:
            return f"too noisy to compare with {before}"
        if not self.is_beyond_noise:
            return f"as {before} (within {numbers.share(self.noise_ratio)})"
        return f"{numbers.share(abs(self.ratio))} {'slower' if self.ratio > 0 else 'faster'} than {before}"


def change_since(
    run: Level | None, before: Sequence[Level | None], spread: RunSpread | None = None
) -> StepChange | None:
    """How the step of a run differs from that of the runs `before`; None without both, or where nothing shows the noise."""
    change = step_change(before, [run], spread)
    if change is None or change.noise_ratio is None:
        return None
    least = LEAST_RATIO if change.is_over_runs else LEAST_RATIO_OF_STEPS
    return StepChange(
        change.ratio,
        max(change.noise_ratio, least),
        sum(level is not None for level in before),
        change.direction in ("slower", "faster") and abs(change.ratio) > least,
    )
