"""`MirroredStrategy` over two parts of a GPU; slow: the batch of one replica is three times as large."""

from __future__ import annotations

from typing import Any

from scripts.real_runs.gpu_mirrored import FEATURES, kept_on_replicas, step_of_replicas
from scripts.real_runs.gpu_training import run_steps, sized
from scripts.real_runs.step_clock import StepClock, run_blocks
from scripts.real_runs.training import numbers

BATCH = sized(1280, 16)
rows = numbers(BATCH * 3, FEATURES)


def train(is_slow: bool, clock: StepClock) -> None:
    step = step_of_replicas()
    batch = kept_on_replicas(lambda number: rows if is_slow and number == 1 else rows[:BATCH])

    def train_step(_: int) -> Any:
        return step(batch)

    run_steps(clock, train_step)


if __name__ == "__main__":
    run_blocks(train)
