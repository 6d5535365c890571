"""A loop on a GPU over `tf.data`; slow: lines of text are parsed one by one in each epoch."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.gpu_training import WIDTH, model_of, run_steps, sized, step_of
from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

BATCH, FEATURES = sized(128, 16), 256
rows = numbers(BATCH, FEATURES)
lines = [",".join(f"{value:.4f}" for value in row) for row in rows]


def train(is_slow: bool, clock: StepClock) -> None:
    if is_slow:
        data = tf.data.Dataset.from_tensor_slices(lines).repeat(STEPS)
        data = data.map(lambda line: tf.stack(tf.io.decode_csv(line, [[0.0]] * FEATURES)))
        data = data.batch(BATCH, drop_remainder=True).prefetch(2)
    else:
        data = tf.data.Dataset.from_tensors(rows).repeat(STEPS).prefetch(2)
    step = step_of(*model_of(WIDTH, 6, FEATURES))
    batches = iter(data)

    def train_step(_: int) -> Any:
        return step(next(batches))

    run_steps(clock, train_step)
