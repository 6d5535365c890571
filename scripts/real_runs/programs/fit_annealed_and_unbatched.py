"""Keras `fit` of a table on one device; slow: a new dropout rate builds the step anew, and rows of files are unbatched and batched again.

Every twelfth step has a new rate. Healthy: the rate is a variable, and whole batches are read.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

BATCH, COLUMNS, CHUNK, EACH = 512, 48, 256, 12

tf.config.threading.set_intra_op_parallelism_threads(1)
table = {f"column_{place}": numbers(CHUNK * 4, 1, seed=place) for place in range(COLUMNS)}
target = numbers(CHUNK * 4, 1, seed=99)


class Annealed(tf.keras.layers.Layer):  # type: ignore[misc]  # Keras has no types here
    """Dropout whose rate is a number of Python, or a variable."""

    def __init__(self, is_variable: bool) -> None:
        super().__init__()
        first = tf.keras.initializers.Constant(0.05)
        weight = self.add_weight(shape=[], initializer=first, trainable=False)
        self.rate: Any = weight if is_variable else 0.05

    def call(self, inputs: Any, training: bool = False) -> Any:
        if not training:
            return inputs
        kept = tf.cast(tf.random.uniform(tf.shape(inputs)[1:]) >= self.rate, inputs.dtype)
        return inputs * kept / (1.0 - self.rate)


class Annealing(tf.keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types here
    """Raises the rate of the dropout layers now and then."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch % EACH != EACH - 1:
            return
        rate = 0.05 + 0.3 * batch / STEPS
        layers = [layer for layer in self.model.layers if isinstance(layer, Annealed)]
        for layer in layers:
            if isinstance(layer.rate, float):
                layer.rate = rate
            else:
                layer.rate.assign(rate)
        if any(isinstance(layer.rate, float) for layer in layers):
            self.model.make_train_function(force=True)


def dataset_of(is_slow: bool) -> Any:
    chunks = tf.data.Dataset.from_tensor_slices((table, target)).batch(CHUNK).cache().repeat()
    if is_slow:
        return chunks.unbatch().batch(BATCH, drop_remainder=True).prefetch(2)
    return chunks.rebatch(BATCH, drop_remainder=True).prefetch(2)


def train(is_slow: bool, clock: StepClock) -> None:
    inputs = {name: tf.keras.Input([1], name=name) for name in table}
    hidden = tf.keras.layers.Concatenate()(list(inputs.values()))
    for units in (384, 384):
        hidden = Annealed(not is_slow)(tf.keras.layers.Dense(units, activation="relu")(hidden))
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(1)(hidden))
    model.compile(optimizer=tf.keras.optimizers.SGD(1e-3), loss="mse")
    ended = tf.keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    callbacks = [Annealing(), ended]
    model.fit(dataset_of(is_slow), steps_per_epoch=STEPS, verbose=0, callbacks=callbacks)
