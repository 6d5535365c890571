"""A loop of convolutions on two replicas that reads its loss in each step, which costs little: nothing slows it down."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import mirrored, numbers, step_of

BATCH, SIZE = 16, 48

strategy = mirrored(2)
images = tf.constant(numbers(BATCH, SIZE, SIZE, 3))


def mean_of(model: Any, batch: Any) -> Any:
    return tf.reduce_mean(tf.square(model(batch, training=True)))


def train(_is_slow: bool, clock: StepClock) -> None:
    with strategy.scope():
        layers = [tf.keras.layers.Conv2D(32, 3, activation="relu") for _ in range(3)]
        model = tf.keras.Sequential([*layers, tf.keras.layers.GlobalAveragePooling2D()])
        model.build([None, SIZE, SIZE, 3])
        optimizer = tf.keras.optimizers.SGD(1e-3)
        optimizer.build(model.trainable_variables)
    step = step_of(strategy, model, optimizer, mean_of)
    losses = []
    for _step in range(STEPS):
        losses.append(float(step(images)))
        clock.step_ended()
