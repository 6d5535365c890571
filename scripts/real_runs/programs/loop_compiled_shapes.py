"""A loop whose step XLA compiles; slow: each batch has another length, and each length is compiled anew."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

LONGEST, FEATURES = 400, 256

rng = np.random.default_rng(1)
rows = numbers(LONGEST, FEATURES)


def train(is_slow: bool, clock: StepClock) -> None:
    weight = tf.Variable(numbers(FEATURES, FEATURES) / 30)

    def update(batch: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.tanh(tf.tanh(batch @ weight) @ weight) - batch))
        weight.assign_sub(1e-3 * tape.gradient(loss, weight))
        return loss

    train_step = tf.function(update, jit_compile=True)
    for _ in range(STEPS):
        length = int(rng.integers(100, LONGEST))
        float(train_step(tf.constant(rows[:length] if is_slow else rows)))
        clock.step_ended()
