"""A loop on two replicas; slow: each step inverts the same matrix, which whitens the batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import dense, mirrored, numbers, squared_error, step_of

BATCH, FEATURES = 192, 320

strategy = mirrored(2)
rows = tf.constant(numbers(BATCH, FEATURES))
covariance = np.cov(numbers(2 * FEATURES, FEATURES), rowvar=False).astype(np.float32)
matrix, inverse = tf.constant(covariance), tf.constant(np.linalg.inv(covariance))


def inverting(model: Any, batch: Any) -> Any:
    return squared_error(model, batch @ tf.linalg.inv(matrix))


def inverted(model: Any, batch: Any) -> Any:
    return squared_error(model, batch @ inverse)


def train(is_slow: bool, clock: StepClock) -> None:
    model, optimizer = dense(strategy, FEATURES, 512, 512)
    step = step_of(strategy, model, optimizer, inverting if is_slow else inverted)
    for _ in range(STEPS):
        step(rows)
        clock.step_ended()
