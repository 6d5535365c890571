"""Keras `fit` on two replicas; slow: the pipeline calls a Python function on each batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import mirrored, numbers

BATCH, FEATURES = 160, 192

strategy = mirrored(2)
table = numbers(BATCH * 4, FEATURES)


def smoothed(batch: Any) -> Any:
    rows = batch.numpy().tolist()
    return np.array(
        [
            [0.5 * left + 0.5 * right for left, right in zip(row, row[1:] + row[:1], strict=True)]
            for row in rows
        ],
        np.float32,
    )


def by_python(batch: Any) -> Any:
    rows = tf.ensure_shape(tf.py_function(smoothed, [batch], tf.float32), [BATCH, FEATURES])
    return rows, rows


def by_ops(batch: Any) -> Any:
    rows = 0.5 * batch + 0.5 * tf.roll(batch, -1, axis=1)
    return rows, rows


def train(is_slow: bool, clock: StepClock) -> None:
    dataset = tf.data.Dataset.from_tensor_slices(table).repeat().batch(BATCH, drop_remainder=True)
    dataset = dataset.map(
        by_ops if clock.is_advised else by_python if is_slow else lambda batch: (batch, batch)
    ).prefetch(2)
    with strategy.scope():
        layers = [tf.keras.layers.Dense(units, activation="relu") for units in (512, 512)]
        model = tf.keras.Sequential([*layers, tf.keras.layers.Dense(FEATURES)])
        model.compile(optimizer="sgd", loss="mse")
    ended = tf.keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    model.fit(dataset, steps_per_epoch=STEPS, verbose=0, callbacks=[ended])
