"""A loop on one device; slow: every fourth step makes its `tf.function` anew."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, SIZE = 24, 32

tf.config.threading.set_intra_op_parallelism_threads(1)
images = tf.random.stateless_normal([BATCH, SIZE, SIZE, 3], seed=[1, 2])


def train(is_slow: bool, clock: StepClock) -> None:
    layers = [tf.keras.layers.Conv2D(24, 3, activation="relu") for _ in range(4)]
    model = tf.keras.Sequential([*layers, tf.keras.layers.GlobalAveragePooling2D()])
    model.build([BATCH, SIZE, SIZE, 3])
    optimizer = tf.keras.optimizers.SGD(0.01)
    optimizer.build(model.trainable_variables)

    def train_step(batch: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(batch, training=True)))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    compiled_step = tf.function(train_step)
    for number in range(STEPS):
        if is_slow and number % 4 == 2:
            compiled_step = tf.function(train_step)
        compiled_step(images)
        clock.step_ended()
