"""Keras `fit` of a speech model on one device; slow: the data set hides stretches of a spectrogram one after the other in a loop over
`tf.range`, not all of them by one comparison.
"""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

BATCH, TIMES, BANDS, UNITS, MASKS, KINDS = 48, 96, 40, 64, 20, 12

tf.config.threading.set_intra_op_parallelism_threads(1)
spectrograms = numbers(BATCH * 4, TIMES, BANDS)
kinds = tf.range(BATCH * 4) % KINDS


def hidden_in_turn(spectrogram: Any, kind: Any) -> Any:
    """A spectrogram with stretches of time set to zero."""
    for _ in tf.range(MASKS):
        start = tf.random.uniform([], 0, TIMES, tf.int32)
        length = tf.random.uniform([], 1, 6, tf.int32)
        times = tf.range(TIMES)
        is_hidden = tf.logical_and(times >= start, times < start + length)
        spectrogram = tf.where(is_hidden[:, None], 0.0, spectrogram)
    return spectrogram, kind


def hidden_at_once(spectrogram: Any, kind: Any) -> Any:
    """The same for all stretches."""
    starts = tf.random.uniform([MASKS, 1], 0, TIMES, tf.int32)
    ends = starts + tf.random.uniform([MASKS, 1], 1, 6, tf.int32)
    times = tf.range(TIMES)
    is_hidden = tf.reduce_any(tf.logical_and(times >= starts, times < ends), 0)
    return tf.where(is_hidden[:, None], 0.0, spectrogram), kind


def train(is_slow: bool, clock: StepClock) -> None:
    dataset = (
        tf.data.Dataset.from_tensor_slices((spectrograms, kinds))
        .repeat()
        .map(hidden_in_turn if is_slow else hidden_at_once, num_parallel_calls=tf.data.AUTOTUNE)
        .batch(BATCH)
        .prefetch(2)
    )
    model = keras.Sequential(
        [
            keras.layers.Conv1D(UNITS, 5, strides=2, activation="relu"),
            keras.layers.Conv1D(UNITS, 5, activation="relu"),
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(KINDS),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer="adam", loss=loss)
    ended = keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    model.fit(dataset, steps_per_epoch=STEPS, verbose=0, callbacks=[ended])
