"""A loop on two replicas; slow: one layer of the model computes in float64."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock, run_blocks
from scripts.real_runs.training import mirrored, numbers, step_of

BATCH, FEATURES = 256, 256

strategy = mirrored(2)
rows = tf.constant(numbers(BATCH, FEATURES))


def error(model: Any, batch: Any) -> Any:
    return tf.reduce_mean(tf.square(tf.cast(model(batch, training=True), tf.float32) - batch))


def train(is_slow: bool, clock: StepClock) -> None:
    with strategy.scope():
        middle = tf.keras.layers.Dense(1024, dtype="float64" if is_slow else "float32")
        first = tf.keras.layers.Dense(768, activation="relu")
        model = tf.keras.Sequential([first, middle, tf.keras.layers.Dense(FEATURES)])
        model.build([None, FEATURES])
        optimizer = tf.keras.optimizers.SGD(1e-3)
        optimizer.build(model.trainable_variables)
    step = step_of(strategy, model, optimizer, error)
    for _ in range(STEPS):
        step(rows)
        clock.step_ended()


if __name__ == "__main__":
    run_blocks(train)
