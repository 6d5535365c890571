"""Keras learns vectors of sounds against a queue of earlier ones, in a `train_step` of its own; slow twice: (a) the whole queue is
shifted by `tf.concat` for the newest vectors, not written in a ring, (b) a callback appends each row of the log of a continued run to
a table of pandas by `pd.concat`, which copies it, not to a list.
"""

from __future__ import annotations

import os
from typing import Any

import keras
import numpy as np
import pandas as pd
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

BATCH, LENGTH, UNITS, QUEUE, DRAWN, LOGGED = 64, 256, 64, 80_000, 4096, 400_000
COLUMNS = [
    "step",
    "loss",
    "fit",
    "rate",
    "load_1",
    "load_5",
    "load_15",
    *[f"user_{i}" for i in range(4)],
]

WHICH = os.environ.get("WHICH", "both")
sounds = numbers(BATCH * 8, LENGTH)
views = sounds + 0.1 * numbers(BATCH * 8, LENGTH, seed=2)
before = pd.DataFrame(numbers(LOGGED, len(COLUMNS)).astype(np.float64), columns=COLUMNS)


class Contrast(keras.Model):  # type: ignore[misc]  # Keras has no types here
    """An encoder whose vectors of two views are to be more alike than those of earlier sounds."""

    def __init__(self, is_shifted: bool) -> None:
        super().__init__()
        self.is_shifted = is_shifted
        self.encoder, self.keys = (
            keras.Sequential(
                [
                    keras.layers.Dense(512, activation="relu"),
                    keras.layers.Dense(512, activation="relu"),
                    keras.layers.Dense(UNITS),
                    keras.layers.UnitNormalization(),
                ]
            )
            for _ in range(2)
        )
        for model in (self.encoder, self.keys):
            model.build([None, LENGTH])
        first = numbers(QUEUE, UNITS, seed=3)
        self.queue = tf.Variable(
            first / np.linalg.norm(first, axis=1, keepdims=True), trainable=False
        )
        self.next = tf.Variable(0, trainable=False)

    def train_step(self, data: Any) -> Any:
        seen, other = data
        keys = self.keys(other)
        earlier = tf.gather(self.queue, tf.random.uniform([DRAWN], 0, QUEUE, tf.int32))
        with tf.GradientTape() as tape:
            vectors = self.encoder(seen, training=True)
            alike = tf.reduce_sum(vectors * keys, 1, keepdims=True)
            unlike = tf.matmul(vectors, earlier, transpose_b=True)
            logits = tf.concat([alike, unlike], 1) / 0.1
            loss = tf.reduce_mean(
                tf.nn.sparse_softmax_cross_entropy_with_logits(tf.zeros(BATCH, tf.int32), logits)
            )
        weights = self.encoder.trainable_variables
        self.optimizer.apply(tape.gradient(loss, weights), weights)
        for slow, fast in zip(self.keys.trainable_variables, weights, strict=True):
            slow.assign(0.99 * slow + 0.01 * fast)
        self.enqueue(keys)
        return {"loss": loss, "fit": tf.reduce_mean(alike)}

    def enqueue(self, keys: Any) -> None:
        if self.is_shifted:
            self.queue.assign(tf.concat([keys, self.queue[:-BATCH]], 0))
        else:
            places = (self.next + tf.range(BATCH)) % QUEUE
            self.queue.scatter_update(tf.IndexedSlices(keys, places))
            self.next.assign((self.next + BATCH) % QUEUE)


class FrameLog(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types here
    """The log of a run that is continued, as a table."""

    def __init__(self, is_frame: bool) -> None:
        super().__init__()
        self.is_frame = is_frame
        self.log = before
        self.rows: list[dict[str, float]] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        row = {"step": LOGGED + batch, "rate": 1e-3, **logs}
        row |= zip(COLUMNS[4:7], os.getloadavg(), strict=True)
        if self.is_frame:
            self.log = pd.concat([self.log, pd.DataFrame([row])], ignore_index=True)
        else:
            self.rows.append(row)

    def on_train_end(self, logs: Any = None) -> None:
        if self.rows:
            self.log = pd.concat([self.log, pd.DataFrame(self.rows)], ignore_index=True)


def train(is_slow: bool, clock: StepClock) -> None:
    model = Contrast(is_slow and WHICH != "b")
    model.compile(optimizer="adam")
    dataset = (
        tf.data.Dataset.from_tensor_slices((sounds, views))
        .batch(BATCH, drop_remainder=True)
        .cache()
        .repeat()
        .prefetch(2)
    )
    log = FrameLog(is_slow and WHICH != "a")
    ended = keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    model.fit(dataset, steps_per_epoch=STEPS, verbose=0, callbacks=[log, ended])
