"""A loop on one device whose step asks Python for the weights of rows; slow: the function for them is defined within the
compiled step, so that AutoGraph converts it, and each of its calls goes through AutoGraph.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, FEATURES = 384, 384

tf.config.threading.set_intra_op_parallelism_threads(1)
features = tf.random.stateless_normal([BATCH, FEATURES], seed=[1, 2])
numbers = tf.random.stateless_uniform([BATCH, 8], seed=[3, 4], maxval=99, dtype=tf.int32)


def weights_of(rows: Any) -> Any:
    return np.array([len(set(row)) / max(abs(int(sum(row))), 1) for row in rows.tolist()], "f4")


def train(is_slow: bool, clock: StepClock) -> None:
    layers = [tf.keras.layers.Dense(units, activation="relu") for units in (1024, FEATURES)]
    model = tf.keras.Sequential(layers)
    model.build([BATCH, FEATURES])
    optimizer = tf.keras.optimizers.SGD(0.01)
    is_nested = is_slow and not clock.is_advised

    def train_step(rows: Any) -> Any:
        def weights_here(rows: Any) -> Any:
            return np.array(
                [len(set(row)) / max(abs(int(sum(row))), 1) for row in rows.tolist()], "f4"
            )

        function = weights_here if is_nested else weights_of
        weights = tf.ensure_shape(tf.numpy_function(function, [numbers], tf.float32), [BATCH])
        with tf.GradientTape() as tape:
            errors = tf.square(model(weights[:, None] * rows, training=True) - rows)
            loss = tf.reduce_mean(errors)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    compiled_step = tf.function(train_step)
    for _ in range(STEPS):
        compiled_step(features)
        clock.step_ended()
