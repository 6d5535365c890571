"""Keras `fit` on two devices of series with noise; slow: the noise has faded out, but is drawn still and multiplied by zero."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import mirrored, numbers

BATCH, TIMES, CHANNELS, UNITS, FADED = 64, 160, 40, 96, 0.0

strategy = mirrored(2)
series = numbers(BATCH * 4, TIMES, CHANNELS)
targets = numbers(BATCH * 4, 8, seed=2)


class FadingNoise(keras.layers.Layer):  # type: ignore[misc]  # Keras has no types here
    """Adds noise, whose strength comes from the settings of the phase."""

    def __init__(self, strength: float, skips: bool) -> None:
        super().__init__()
        self.strength = strength
        self.skips = skips

    def call(self, inputs: Any, training: bool = False) -> Any:
        if not training or (self.skips and not self.strength):
            return inputs
        noise = tf.random.normal(tf.shape(inputs), dtype=inputs.dtype)
        return inputs + self.strength * noise


def train(is_slow: bool, clock: StepClock) -> None:
    dataset = (
        tf.data.Dataset.from_tensor_slices((series, targets))
        .batch(BATCH)
        .cache()
        .repeat()
        .prefetch(2)
    )
    with strategy.scope():
        model = keras.Sequential(
            [
                FadingNoise(FADED, not is_slow),
                keras.layers.Conv1D(UNITS, 5, strides=2, activation="relu"),
                FadingNoise(FADED, not is_slow),
                keras.layers.Conv1D(UNITS, 5, strides=2, activation="relu"),
                keras.layers.GlobalAveragePooling1D(),
                keras.layers.Dense(8),
            ]
        )
        model.compile(optimizer="adam", loss="mse")
    ended = keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    model.fit(dataset, steps_per_epoch=STEPS, verbose=0, callbacks=[ended])
