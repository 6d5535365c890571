"""A loop on two replicas; slow: after each step NumPy updates a moving average of all weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import dense, mirrored, numbers, step_of

BATCH, FEATURES = 128, 256

strategy = mirrored(2)
rows = tf.constant(numbers(BATCH, FEATURES))


def updated(averages: list[Any], model: Any) -> list[Any]:
    values = [variable.numpy().astype(np.float64) for variable in model.trainable_variables]
    if not averages:
        return values
    return [0.999 * old + 0.001 * new for old, new in zip(averages, values, strict=True)]


def train(is_slow: bool, clock: StepClock) -> None:
    model, optimizer = dense(strategy, FEATURES, 768, 768)
    step = step_of(strategy, model, optimizer)
    averages: list[Any] = []
    for _ in range(STEPS):
        step(rows)
        if is_slow:
            averages = updated(averages, model)
        clock.step_ended()
