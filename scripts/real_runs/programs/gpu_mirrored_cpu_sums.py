"""`MirroredStrategy` over two parts of a GPU; slow: the strategy sums gradients on the CPU."""

from __future__ import annotations

from typing import Any

from scripts.real_runs.gpu_mirrored import (
    FEATURES,
    kept_on_replicas,
    step_of_replicas,
    strategy,
    summing_on,
)
from scripts.real_runs.gpu_training import run_steps, sized
from scripts.real_runs.step_clock import StepClock
from scripts.real_runs.training import numbers, squared_error

rows = numbers(sized(3072, 16), FEATURES)


def train(is_slow: bool, clock: StepClock) -> None:
    step = step_of_replicas(squared_error, 5, summing_on("/CPU:0") if is_slow else strategy)
    batch = kept_on_replicas(lambda _: rows)

    def train_step(_: int) -> Any:
        return step(batch)

    run_steps(clock, train_step)
