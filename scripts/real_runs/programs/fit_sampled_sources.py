"""Keras `fit` on one device from two sources; slow: every fourth batch is of the one whose signals are filtered row by row."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

BATCH, FEATURES = 192, 256

tf.config.threading.set_intra_op_parallelism_threads(1)
clean, noisy = numbers(BATCH, FEATURES), numbers(BATCH, FEATURES, seed=2)


def filtered(row: Any) -> Any:
    spectrum = tf.signal.fft(tf.cast(tf.tile(row, [48]), tf.complex64))
    power = tf.abs(spectrum)
    kept = tf.where(power > tf.reduce_mean(power), spectrum, tf.zeros_like(spectrum))
    return tf.math.real(tf.signal.ifft(kept))[:FEATURES]


def batches_of(source: Any) -> Any:
    return source.repeat().batch(BATCH, drop_remainder=True)


def dataset_of(is_slow: bool) -> Any:
    first = tf.data.Dataset.from_tensor_slices(clean)
    second = tf.data.Dataset.from_tensor_slices(noisy).map(filtered)
    sources = [batches_of(first), batches_of(second if is_slow else second.cache())]
    turns = tf.data.Dataset.from_tensor_slices(tf.constant([0, 0, 0, 1], tf.int64)).repeat()
    mixed = tf.data.Dataset.choose_from_datasets(sources, turns)
    return mixed.map(lambda rows: (rows, rows), num_parallel_calls=2).prefetch(2)


def train(is_slow: bool, clock: StepClock) -> None:
    layers = [tf.keras.layers.Dense(units, activation="relu") for units in (768, 768)]
    model = tf.keras.Sequential([*layers, tf.keras.layers.Dense(FEATURES)])
    model.compile(optimizer=tf.keras.optimizers.SGD(1e-3), loss="mse")
    ended = tf.keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    model.fit(dataset_of(is_slow), steps_per_epoch=STEPS, verbose=0, callbacks=[ended])
