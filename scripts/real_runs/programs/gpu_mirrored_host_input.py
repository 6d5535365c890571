"""`MirroredStrategy` over two parts of a GPU; slow: an option keeps the batches in host memory until the step wants them."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.gpu_mirrored import FEATURES, step_of_replicas, strategy
from scripts.real_runs.gpu_training import run_steps, sized
from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers, squared_error

rows = numbers(sized(3072, 16), FEATURES)
step = step_of_replicas(squared_error, 16)


def batches_of_worker(_: Any) -> Any:
    return tf.data.Dataset.from_tensors(rows).repeat(2 * STEPS).prefetch(2)


def train(is_slow: bool, clock: StepClock) -> None:
    options = tf.distribute.InputOptions(experimental_fetch_to_device=not is_slow)
    batches = iter(strategy.distribute_datasets_from_function(batches_of_worker, options))

    def train_step(_: int) -> Any:
        return step(next(batches))

    run_steps(clock, train_step)
