"""Keras `fit` of a codebook of signals; slow twice: distances to its entries are taken from all differences, not by a product, and a callback writes the loss of each sample into a table that another process keeps, one by one."""

from __future__ import annotations

from multiprocessing import Manager
from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock, run_blocks
from scripts.real_runs.training import numbers

SAMPLES, LENGTH, CHANNELS, BATCH, WIDTH, ENTRIES = 256, 32, 16, 64, 48, 64

tf.config.threading.set_intra_op_parallelism_threads(1)
signals = numbers(SAMPLES, LENGTH, CHANNELS)


class Codebook(tf.keras.layers.Layer):  # type: ignore[misc]  # Keras has no types here
    """Puts the nearest of its entries in the place of each vector."""

    def __init__(self, is_slow: bool) -> None:
        super().__init__()
        self.is_slow = is_slow
        self.entries = self.add_weight(shape=[ENTRIES, WIDTH], initializer="random_normal")

    def distances(self, vectors: Any) -> Any:
        if self.is_slow:
            return tf.reduce_sum((vectors[:, None, :] - self.entries) ** 2, axis=-1)
        products = tf.matmul(vectors, self.entries, transpose_b=True)
        return tf.reduce_sum(self.entries**2, axis=-1) - 2 * products

    def call(self, hidden: Any) -> Any:
        vectors = tf.reshape(hidden, [-1, WIDTH])
        nearest = tf.gather(self.entries, tf.argmin(self.distances(vectors), axis=-1))
        nearest = tf.reshape(nearest, tf.shape(hidden))
        self.add_loss(tf.reduce_mean((nearest - tf.stop_gradient(hidden)) ** 2))
        return hidden + tf.stop_gradient(nearest - hidden)


class Hardest(tf.keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types here
    """Tells the process that chooses samples how much each has been missed."""

    def __init__(self, table: Any, is_slow: bool) -> None:
        super().__init__()
        self.table, self.is_slow = table, is_slow

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        first = batch * BATCH % SAMPLES
        missed = dict.fromkeys(range(first, first + BATCH), logs["loss"])
        if self.is_slow:
            for sample, loss in missed.items():
                self.table[sample] = loss
        else:
            self.table.update(missed)


def train(is_slow: bool, clock: StepClock) -> None:
    layers = tf.keras.layers
    inputs = tf.keras.Input([LENGTH, CHANNELS])
    hidden = layers.Conv1D(176, 5, padding="same", activation="relu")(inputs)
    hidden = Codebook(is_slow)(layers.Conv1D(WIDTH, 5, padding="same")(hidden))
    hidden = layers.Conv1D(176, 5, padding="same", activation="relu")(hidden)
    model = tf.keras.Model(inputs, layers.Conv1D(CHANNELS, 5, padding="same")(hidden))
    model.compile(optimizer="adam", loss="mse")
    dataset = tf.data.Dataset.from_tensor_slices((signals, signals)).batch(BATCH).cache().repeat()
    ended = tf.keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    callbacks = [Hardest(manager.dict(), is_slow), ended]
    model.fit(dataset.prefetch(2), steps_per_epoch=STEPS, verbose=0, callbacks=callbacks)


if __name__ == "__main__":
    with Manager() as manager:
        run_blocks(train)
