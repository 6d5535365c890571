"""`MirroredStrategy` over two parts of a GPU; slow: the batch of one replica is padded to three times its rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.gpu_mirrored import FEATURES, REPLICAS, kept_on_replicas, step_of_replicas
from scripts.real_runs.gpu_training import run_steps, sized
from scripts.real_runs.step_clock import StepClock
from scripts.real_runs.training import numbers

BATCH = sized(4096, 16)
rows = numbers(BATCH, FEATURES)
padded = np.pad(rows, [(0, 2 * BATCH), (0, 0)])


def loss_of(model: Any, batch: Any) -> Any:
    """The mean error of the rows that are no padding."""
    is_real = tf.cast(tf.reduce_any(tf.not_equal(batch, 0), axis=1), tf.float32)
    errors = tf.reduce_mean(tf.square(model(batch, training=True) - batch), axis=1)
    return tf.reduce_sum(is_real * errors) / tf.reduce_sum(is_real)


def train(is_slow: bool, clock: StepClock) -> None:
    def rows_of(replica: int) -> Any:
        return padded if is_slow and replica == REPLICAS - 1 else rows

    step, batch = step_of_replicas(loss_of), kept_on_replicas(rows_of)

    def train_step(_: int) -> Any:
        return step(batch)

    run_steps(clock, train_step)
