"""Keras `fit` on readings of machines; slow: the mean and the deviation by which a batch is scaled are those of all readings, taken anew for each batch."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

READINGS, SENSORS, BATCH, WIDTH, LAYERS, KINDS = 96_000, 96, 320, 224, 4, 5

tf.config.threading.set_intra_op_parallelism_threads(1)
readings = tf.constant(3 * numbers(READINGS, SENSORS) + 20)
faults = tf.constant(abs(numbers(READINGS, seed=8)) * 1.2 % KINDS, tf.int32)


def spread_of(values: Any) -> tuple[Any, Any]:
    """The mean and the deviation of each sensor."""
    mean, variance = tf.nn.moments(values, axes=[0])
    return mean, tf.sqrt(variance + 1e-6)


def dataset_of(is_slow: bool) -> Any:
    known_mean, known_deviation = spread_of(readings)

    def scaled(rows: Any, kinds: Any) -> Any:
        mean, deviation = spread_of(readings) if is_slow else (known_mean, known_deviation)
        return tf.clip_by_value((rows - mean) / deviation, -4.0, 4.0), kinds

    dataset = tf.data.Dataset.from_tensor_slices((readings[: BATCH * 12], faults[: BATCH * 12]))
    return dataset.batch(BATCH, drop_remainder=True).repeat().map(scaled).prefetch(2)


def train(is_slow: bool, clock: StepClock) -> None:
    layers = tf.keras.layers
    inputs = tf.keras.Input([SENSORS])
    hidden = layers.Dense(WIDTH, activation="gelu")(inputs)
    for _ in range(LAYERS):
        more = layers.Dense(WIDTH)(layers.Dense(WIDTH, activation="gelu")(hidden))
        hidden = layers.LayerNormalization()(hidden + more)
    model = tf.keras.Model(inputs, layers.Dense(KINDS)(hidden))
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=tf.keras.optimizers.SGD(1e-2), loss=loss)
    ended = tf.keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    model.fit(dataset_of(is_slow), steps_per_epoch=STEPS, verbose=0, callbacks=[ended])
