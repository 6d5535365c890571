"""Keras `fit` on a table; slow twice: each column of a row is a tensor of its own until batches are made, and after every twelfth batch a callback looks through all objects of Python for tensors that leak."""

from __future__ import annotations

import gc
from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

ROWS, COLUMNS, BATCH, UNITS = 8192, 64, 1024, 512

tf.config.threading.set_intra_op_parallelism_threads(1)
names = [f"sensor_{number}" for number in range(COLUMNS)]
table = numbers(ROWS, COLUMNS)
targets = table.mean(axis=1)


class LeakHunt(tf.keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types here
    """Notes how many tensors there are."""

    def __init__(self, is_slow: bool) -> None:
        super().__init__()
        self.is_slow = is_slow
        self.counts: list[int] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self.is_slow and batch % 12 == 11:
            # As in a process that trains once: what is frozen would be left out.
            gc.unfreeze()
            self.counts.append(
                sum(type(thing).__name__ == "EagerTensor" for thing in gc.get_objects())
            )


def dataset_of(is_slow: bool) -> Any:
    """Batches of rows by the names of their columns."""

    def named(columns: Any, target: Any) -> Any:
        return dict(zip(names, tf.unstack(columns, axis=1), strict=True)), target

    if is_slow:
        columns = {name: table[:, number] for number, name in enumerate(names)}
        return tf.data.Dataset.from_tensor_slices((columns, targets)).repeat().batch(BATCH)
    rows = tf.data.Dataset.from_tensor_slices((table, targets)).repeat().batch(BATCH)
    return rows.map(named)


def train(is_slow: bool, clock: StepClock) -> None:
    layers = tf.keras.layers
    inputs = {name: tf.keras.Input([], name=name) for name in names}
    hidden = tf.keras.ops.stack(list(inputs.values()), axis=1)
    for _ in range(3):
        hidden = layers.Dense(UNITS, activation="gelu")(hidden)
    model = tf.keras.Model(inputs, layers.Dense(1)(hidden))
    model.compile(optimizer="sgd", loss="mae")
    ended = tf.keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    callbacks = [LeakHunt(is_slow), ended]
    model.fit(
        dataset_of(is_slow).prefetch(2), steps_per_epoch=STEPS, verbose=0, callbacks=callbacks
    )
