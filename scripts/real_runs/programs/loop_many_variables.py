"""A loop on two replicas; slow: the model has 300 tiny variables, each with an all-reduce and an update of its own."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import dense, mirrored, numbers, squared_error, step_of

BATCH, FEATURES, SCALES = 192, 256, 300

strategy = mirrored(2)
rows = tf.constant(numbers(BATCH, FEATURES))


class Scaled(tf.keras.layers.Layer):  # type: ignore[misc]  # TensorFlow has no types here
    """Multiplies by the mean of numbers that are variables of their own."""

    def __init__(self, is_one: bool) -> None:
        super().__init__()
        self.is_one = is_one

    def build(self, shape: Any) -> None:
        if self.is_one:
            self.scales = self.add_weight(shape=(SCALES,), initializer="ones")
            return
        self.scales = [self.add_weight(shape=(), initializer="ones") for _ in range(SCALES)]

    def call(self, inputs: Any) -> Any:
        if self.is_one:
            return inputs * tf.reduce_mean(tf.math.tanh(self.scales))
        return inputs * (tf.add_n([tf.math.tanh(scale) for scale in self.scales]) / SCALES)


def train(is_slow: bool, clock: StepClock) -> None:
    model, optimizer = dense(strategy, FEATURES, 512, 512)
    if is_slow:
        with strategy.scope():
            model.add(Scaled(clock.is_advised))
            optimizer = tf.keras.optimizers.SGD(1e-3)
            optimizer.build(model.trainable_variables)
    step = step_of(strategy, model, optimizer, squared_error)
    for _ in range(STEPS):
        step(rows)
        clock.step_ended()
