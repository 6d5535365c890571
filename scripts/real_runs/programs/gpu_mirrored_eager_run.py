"""`MirroredStrategy` over two parts of a GPU; slow: `strategy.run` is called outside of any `tf.function`, so that the step runs op by op."""

from __future__ import annotations

from typing import Any

from scripts.real_runs.gpu_mirrored import FEATURES, kept_on_replicas, step_of_replicas
from scripts.real_runs.gpu_training import run_steps, sized
from scripts.real_runs.step_clock import StepClock
from scripts.real_runs.training import numbers

rows = numbers(sized(16_384, 16), FEATURES)


def train(is_slow: bool, clock: StepClock) -> None:
    step = step_of_replicas(layers=3, in_graph=not is_slow)
    batch = kept_on_replicas(lambda _: rows)

    def train_step(_: int) -> Any:
        return step(batch)

    run_steps(clock, train_step)
