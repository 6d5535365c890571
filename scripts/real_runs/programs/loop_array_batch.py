"""A loop on two replicas; slow: the step gets a large NumPy array of float64, which is converted in each call."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import dense, mirrored, numbers, step_of

BATCH, FEATURES, CHANNELS = 256, 256, 96

strategy = mirrored(2)
# A view in another order: what is converted is gathered number by number.
images = numbers(CHANNELS, FEATURES, BATCH).astype(np.float64).transpose(2, 1, 0)


def of_first_channel(model: Any, batch: Any) -> Any:
    rows = tf.cast(batch[:, :, 0], tf.float32)
    return tf.reduce_mean(tf.square(model(rows, training=True) - rows))


def train(is_slow: bool, clock: StepClock) -> None:
    step = step_of(strategy, *dense(strategy, FEATURES, 640, 640), of_first_channel)
    converted = tf.constant(images)
    for _ in range(STEPS):
        step(images if is_slow else converted)
        clock.step_ended()
