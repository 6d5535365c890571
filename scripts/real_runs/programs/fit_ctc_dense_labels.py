"""Keras `fit` of a reader of handwriting on two replicas; slow: the CTC loss gets labels as a dense tensor, for which it runs a loop
over the times in small ops, not a sparse one, for which there is one op.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import mirrored, numbers

BATCH, HEIGHT, WIDTH, LETTERS, LONGEST = 32, 24, 160, 40, 12

strategy = mirrored(2)
lines = numbers(BATCH * 4, WIDTH, HEIGHT)
random = np.random.default_rng(5)
texts = random.integers(1, LETTERS, (BATCH * 4, LONGEST)).astype(np.int32)
texts[np.arange(LONGEST)[None] >= random.integers(5, LONGEST + 1, (BATCH * 4, 1))] = 0


def dense_ctc(labels: Any, logits: Any) -> Any:
    """The loss of texts that are padded with blanks."""
    labels = tf.cast(labels, tf.int32)
    times = tf.fill([tf.shape(logits)[0]], tf.shape(logits)[1])
    lengths = tf.math.count_nonzero(labels, axis=1, dtype=tf.int32)
    return tf.nn.ctc_loss(labels, logits, lengths, times, logits_time_major=False, blank_index=0)


def sparse_ctc(labels: Any, logits: Any) -> Any:
    """The same of the letters alone."""
    labels = tf.cast(labels, tf.int32)
    times = tf.fill([tf.shape(logits)[0]], tf.shape(logits)[1])
    letters = tf.sparse.from_dense(labels)
    return tf.nn.ctc_loss(letters, logits, None, times, logits_time_major=False, blank_index=0)


def train(is_slow: bool, clock: StepClock) -> None:
    dataset = (
        tf.data.Dataset.from_tensor_slices((lines, texts)).batch(BATCH).cache().repeat().prefetch(2)
    )
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((WIDTH, HEIGHT)),
                keras.layers.Conv1D(128, 5, padding="same", activation="relu"),
                keras.layers.MaxPooling1D(2),
                keras.layers.Conv1D(192, 5, padding="same", activation="relu"),
                keras.layers.Dropout(0.1),
                keras.layers.Dense(LETTERS),
            ]
        )
        model.compile(optimizer="adam", loss=dense_ctc if is_slow else sparse_ctc)
    ended = keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    model.fit(dataset, steps_per_epoch=STEPS, verbose=0, callbacks=[ended])
