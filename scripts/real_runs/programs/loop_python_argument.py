"""A loop on one device whose learning rate warms up; slow: the rate is a Python number, and each new one traces the step."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, FEATURES = 384, 512

tf.config.threading.set_intra_op_parallelism_threads(1)
features = tf.random.stateless_normal([BATCH, FEATURES], seed=[1, 2])


def train(is_slow: bool, clock: StepClock) -> None:
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Dense(1024, activation="relu"),
            tf.keras.layers.Dense(1024, activation="relu"),
            tf.keras.layers.Dense(FEATURES),
        ]
    )
    model.build([BATCH, FEATURES])

    def train_step(rows: Any, rate: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(rows, training=True) - rows))
        for weights, gradient in zip(
            model.trainable_variables,
            tape.gradient(loss, model.trainable_variables),
            strict=True,
        ):
            weights.assign_sub(rate * gradient)
        return loss

    compiled_step = tf.function(train_step)
    for number in range(STEPS):
        rate = 0.001 * (1 + (number + 2) // 4)
        compiled_step(features, rate if is_slow else tf.constant(rate))
        clock.step_ended()
