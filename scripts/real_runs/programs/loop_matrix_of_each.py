"""A loop over two replicas, whose layer multiplies rows of grids with a matrix; slow: by `@`, whose gradient is made for each row of a grid."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import mirrored, numbers, step_of

BATCH, SIDE, FEATURES, UNITS = 32, 14, 96, 112

strategy = mirrored(2)
grids = numbers(512, SIDE, SIDE, FEATURES)


class Mixed(tf.keras.layers.Layer):  # type: ignore[misc]  # TensorFlow has no types here
    def __init__(self, units: int, is_slow: bool) -> None:
        super().__init__()
        self.units, self.is_slow = units, is_slow

    def build(self, shape: Any) -> None:
        self.kernel = self.add_weight(shape=(shape[-1], self.units))

    def call(self, rows: Any) -> Any:
        if self.is_slow:
            return tf.nn.relu(rows @ self.kernel)
        return tf.nn.relu(tf.tensordot(rows, self.kernel, 1))


def train(is_slow: bool, clock: StepClock) -> None:
    with strategy.scope():
        layers = [Mixed(UNITS, is_slow), tf.keras.layers.Dense(UNITS, activation="relu")]
        model = tf.keras.Sequential([*layers, Mixed(FEATURES, is_slow)])
        model.build([None, SIDE, SIDE, FEATURES])
        optimizer = tf.keras.optimizers.SGD(1e-3)
        optimizer.build(model.trainable_variables)
    train_step = step_of(strategy, model, optimizer)
    batches = tf.data.Dataset.from_tensor_slices(grids).batch(BATCH, drop_remainder=True)
    source = iter(strategy.experimental_distribute_dataset(batches.cache().repeat().prefetch(2)))
    for _ in range(STEPS):
        train_step(next(source))
        clock.step_ended()
