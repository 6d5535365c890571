"""Keras `fit` on two replicas; slow twice: a pipeline parses numbers from text, and a callback ranks the weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import mirrored, numbers

BATCH, FEATURES = 128, 192

strategy = mirrored(2)
table = numbers(BATCH * 2, FEATURES)
lines = tf.constant([" ".join(f"{number:.4f}" for number in row) for row in table])


def parsed(line: Any) -> Any:
    texts = tf.strings.split(tf.strings.regex_replace(line, " +", " "))
    row = tf.ensure_shape(tf.strings.to_number(texts), [FEATURES])
    return row, row


def rank(model: Any) -> None:
    for weights in model.get_weights():
        np.argsort(weights, axis=None)


def train(is_slow: bool, clock: StepClock) -> None:
    if is_slow:
        dataset = tf.data.Dataset.from_tensor_slices(lines).map(parsed)
    else:
        dataset = tf.data.Dataset.from_tensor_slices((table, table))
    with strategy.scope():
        layers = [tf.keras.layers.Dense(units, activation="relu") for units in (384, 256)]
        model = tf.keras.Sequential([*layers, tf.keras.layers.Dense(FEATURES)])
        model.compile(optimizer="sgd", loss="mse")

    def batch_ended(batch: int, logs: object) -> None:
        if is_slow:
            rank(model)
        clock.step_ended()

    ended = tf.keras.callbacks.LambdaCallback(on_train_batch_end=batch_ended)
    dataset = dataset.repeat().batch(BATCH, drop_remainder=True).prefetch(1)
    model.fit(dataset, steps_per_epoch=STEPS, verbose=0, callbacks=[ended])
