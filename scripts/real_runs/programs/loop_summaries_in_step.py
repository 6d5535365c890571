"""A loop on one device; slow: the step itself writes histograms of the activations and the gradients."""

from __future__ import annotations

import tempfile
from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, FEATURES = 256, 512

tf.config.threading.set_intra_op_parallelism_threads(1)
features = tf.random.stateless_normal([BATCH, FEATURES], seed=[1, 2])


def summaries_to(folder: str) -> Any:
    return tf.summary.create_file_writer(folder).as_default()


def train(is_slow: bool, clock: StepClock) -> None:
    hidden = tf.keras.layers.Dense(1024, activation="relu")
    output = tf.keras.layers.Dense(FEATURES)
    model = tf.keras.Sequential([hidden, output])
    model.build([BATCH, FEATURES])
    optimizer = tf.keras.optimizers.SGD(0.01)
    optimizer.build(model.trainable_variables)

    def train_step(rows: Any, number: Any) -> Any:
        with tf.GradientTape() as tape:
            activations = hidden(rows)
            loss = tf.reduce_mean(tf.square(output(activations) - rows))
        gradients = tape.gradient(loss, model.trainable_variables)
        if is_slow:
            tf.summary.histogram("activations", activations, step=number)
            for weights, gradient in zip(model.trainable_variables, gradients, strict=True):
                tf.summary.histogram(weights.path, gradient, step=number)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    compiled_step = tf.function(train_step)
    with tempfile.TemporaryDirectory() as folder, summaries_to(folder):
        for number in range(STEPS):
            compiled_step(features, tf.constant(number, tf.int64))
            clock.step_ended()
