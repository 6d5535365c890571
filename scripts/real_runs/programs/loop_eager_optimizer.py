"""A loop on one device of a deep network; slow: only the gradients are in a graph, Adam updates op by op from Python."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, FEATURES, LAYERS = 256, 256, 16

tf.config.threading.set_intra_op_parallelism_threads(1)
features = tf.random.stateless_normal([BATCH, FEATURES], seed=[1, 2])


class ClippedAdam:
    """Adam with the gradients of each variable clipped, in plain ops."""

    def __init__(self, variables: Any) -> None:
        self._slots = [
            (variable, tf.Variable(tf.zeros_like(variable)), tf.Variable(tf.zeros_like(variable)))
            for variable in variables
        ]

    def update(self, gradients: Any) -> None:
        for gradient, (variable, first, second) in zip(gradients, self._slots, strict=True):
            clipped = tf.clip_by_norm(gradient, 1.0)
            first.assign(0.9 * first + 0.1 * clipped)
            second.assign(0.999 * second + 0.001 * tf.square(clipped))
            variable.assign_sub(0.001 * first / (tf.sqrt(second) + 1e-7))


def train(is_slow: bool, clock: StepClock) -> None:
    model = tf.keras.Sequential(
        [tf.keras.layers.Dense(FEATURES, activation="relu") for _ in range(LAYERS)]
    )
    model.build([BATCH, FEATURES])
    optimizer = ClippedAdam([weights.value for weights in model.trainable_variables])

    def gradients_of(rows: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(rows, training=True) - rows))
        return tape.gradient(loss, model.trainable_variables)

    def train_step(rows: Any) -> None:
        optimizer.update(gradients_of(rows))

    compiled_gradients, compiled_step = tf.function(gradients_of), tf.function(train_step)
    for _ in range(STEPS):
        if is_slow:
            optimizer.update(compiled_gradients(features))
        else:
            compiled_step(features)
        clock.step_ended()
