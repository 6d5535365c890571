"""A loop on one device; slow: nested lists are passed to the step and made into a tensor each time."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, FEATURES, ROWS = 128, 512, 6144

tf.config.threading.set_intra_op_parallelism_threads(1)
table = np.random.default_rng(1).standard_normal([ROWS, FEATURES]).tolist()
features = tf.random.stateless_normal([BATCH, FEATURES], seed=[1, 2])


def train(is_slow: bool, clock: StepClock) -> None:
    model = tf.keras.Sequential(
        [tf.keras.layers.Dense(3072, activation="relu"), tf.keras.layers.Dense(FEATURES)]
    )
    model.build([BATCH, FEATURES])
    optimizer = tf.keras.optimizers.Adam()

    def train_step(rows: Any, neighbors: Any, first: Any) -> Any:
        with tf.GradientTape() as tape:
            targets = neighbors[first : first + BATCH]
            loss = tf.reduce_mean(tf.square(model(rows, training=True) - targets))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    compiled_step = tf.function(train_step)
    on_device = tf.constant(table)
    for number in range(STEPS):
        neighbors = on_device if not is_slow or clock.is_advised else tf.constant(table)
        compiled_step(features, neighbors, tf.constant(number * BATCH))
        clock.step_ended()
