"""A loop on one device; slow: `tf.print` writes a whole layer from inside the step."""

from __future__ import annotations

import os
from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, FEATURES = 256, 512

tf.config.threading.set_intra_op_parallelism_threads(1)
features = tf.random.stateless_normal([BATCH * 4, FEATURES], seed=[1, 2])


def train(is_slow: bool, clock: StepClock) -> None:
    dataset = tf.data.Dataset.from_tensor_slices(features).batch(BATCH).cache().repeat()
    model = tf.keras.Sequential(
        [tf.keras.layers.Dense(1024, activation="relu"), tf.keras.layers.Dense(FEATURES)]
    )
    model.build([BATCH, FEATURES])
    optimizer = tf.keras.optimizers.Adam()

    def train_step(rows: Any) -> Any:
        with tf.GradientTape() as tape:
            outputs = model(rows, training=True)
            loss = tf.reduce_mean(tf.square(outputs - rows))
        if is_slow:
            tf.print("outputs", outputs, summarize=-1, output_stream=f"file://{os.devnull}")
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    compiled_step = tf.function(train_step)
    iterator = iter(dataset.prefetch(2))
    for _ in range(STEPS):
        compiled_step(next(iterator))
        clock.step_ended()
