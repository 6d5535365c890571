"""`MirroredStrategy` over two parts of a GPU; slow: a generator changes each batch in Python."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.gpu_mirrored import FEATURES, REPLICAS, step_of_replicas, strategy
from scripts.real_runs.gpu_training import run_steps, sized
from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

rows = numbers(sized(128, 16) * REPLICAS, FEATURES)


def changed() -> Iterator[Any]:
    while True:
        yield np.mean([np.sort(np.sin(rows + part), axis=1) for part in range(8)], axis=0)


def train(is_slow: bool, clock: StepClock) -> None:
    if is_slow:
        data = tf.data.Dataset.from_generator(
            changed, output_signature=tf.TensorSpec(rows.shape, tf.float32)
        )
    else:
        data = tf.data.Dataset.from_tensors(rows).repeat(STEPS)
    step = step_of_replicas()
    batches = iter(strategy.experimental_distribute_dataset(data.prefetch(2)))

    def train_step(_: int) -> Any:
        return step(next(batches))

    run_steps(clock, train_step)
