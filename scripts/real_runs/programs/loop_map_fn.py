"""A loop on one device; slow: `tf.map_fn` runs small ops row by row instead of on the whole batch."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, FEATURES = 1024, 256

tf.config.threading.set_intra_op_parallelism_threads(1)
features = tf.random.stateless_normal([BATCH, FEATURES], seed=[1, 2])


def normalized(row: Any) -> Any:
    centered = row - tf.reduce_mean(row, axis=-1, keepdims=True)
    scale = tf.sqrt(tf.reduce_mean(tf.square(centered), axis=-1, keepdims=True) + 1e-6)
    return tf.clip_by_value(tf.tanh(centered / scale), -0.9, 0.9)


def train(is_slow: bool, clock: StepClock) -> None:
    model = tf.keras.Sequential(
        [tf.keras.layers.Dense(1024, activation="relu"), tf.keras.layers.Dense(FEATURES)]
    )
    model.build([BATCH, FEATURES])
    optimizer = tf.keras.optimizers.SGD(0.01)

    def train_step(rows: Any) -> Any:
        rows = tf.map_fn(normalized, rows) if is_slow else normalized(rows)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(rows, training=True) - rows))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    compiled_step = tf.function(train_step)
    for _ in range(STEPS):
        compiled_step(features)
        clock.step_ended()
