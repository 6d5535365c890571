"""Keras `fit` on two replicas; slow: every line of a table is decoded again, one by one."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import mirrored, numbers

BATCH, FEATURES = 128, 96

strategy = mirrored(2)
table = numbers(BATCH * 4, FEATURES)
lines = tf.constant([",".join(f"{number:.5f}" for number in row) for row in table])


def decoded(line: Any) -> Any:
    row = tf.stack(tf.io.decode_csv(line, [0.0] * FEATURES))
    return row, row


def train(is_slow: bool, clock: StepClock) -> None:
    if is_slow:
        dataset = tf.data.Dataset.from_tensor_slices(lines).map(decoded)
        dataset = dataset.cache() if clock.is_advised else dataset
    else:
        dataset = tf.data.Dataset.from_tensor_slices((table, table))
    dataset = dataset.repeat().batch(BATCH, drop_remainder=True).prefetch(2)
    with strategy.scope():
        layers = [tf.keras.layers.Dense(units, activation="relu") for units in (768, 768)]
        model = tf.keras.Sequential([*layers, tf.keras.layers.Dense(FEATURES)])
        model.compile(optimizer="sgd", loss="mse")
    ended = tf.keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    model.fit(dataset, steps_per_epoch=STEPS, verbose=0, callbacks=[ended])
