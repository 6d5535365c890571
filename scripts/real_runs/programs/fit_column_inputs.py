"""Keras `fit` on one device; slow: each of 96 columns of a table is an input with layers of its own, not all of them one."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

BATCH, COLUMNS, WIDTH = 512, 96, 4

tf.config.threading.set_intra_op_parallelism_threads(1)
table, labels = numbers(BATCH, COLUMNS), numbers(BATCH, 1, seed=2)


def column_model() -> tuple[Any, Any]:
    """An input, a normalization and a layer for each column."""
    inputs = {f"column_{place}": tf.keras.Input([1]) for place in range(COLUMNS)}
    parts = []
    for column in inputs.values():
        scaled = tf.keras.layers.Normalization(mean=0.0, variance=1.0)(column)
        parts.append(tf.keras.layers.Dense(WIDTH, activation="relu")(scaled))
    return inputs, tf.keras.layers.Concatenate()(parts)


def table_model() -> tuple[Any, Any]:
    """One input, and the layers of all columns as one product."""
    rows = tf.keras.Input([COLUMNS])
    scaled = tf.keras.layers.Normalization(mean=0.0, variance=1.0)(rows)
    columns = tf.keras.layers.Reshape([COLUMNS, 1])(scaled)
    layer = tf.keras.layers.EinsumDense(
        "bci,cio->bco", [COLUMNS, WIDTH], activation="relu", bias_axes="co"
    )
    return rows, tf.keras.layers.Flatten()(layer(columns))


def train(is_slow: bool, clock: StepClock) -> None:
    inputs, features = column_model() if is_slow else table_model()
    hidden = tf.keras.layers.Dense(768, activation="relu")(features)
    hidden = tf.keras.layers.Dense(512, activation="relu")(hidden)
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(1)(hidden))
    model.compile(optimizer=tf.keras.optimizers.SGD(1e-3), loss="mse")
    rows = {name: table[:, [place]] for place, name in enumerate(inputs)} if is_slow else table
    dataset = tf.data.Dataset.from_tensors((rows, labels)).cache().repeat().prefetch(2)
    ended = tf.keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    model.fit(dataset, steps_per_epoch=STEPS, verbose=0, callbacks=[ended])
