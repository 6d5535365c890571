"""Keras `fit` on JAX of a network over series; slow: dropout draws a number for each element, not one for each channel."""

from __future__ import annotations

import os
from typing import Any

os.environ["KERAS_BACKEND"] = "jax"

import keras
import numpy as np

from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, TIMES, CHANNELS, CLASSES = 64, 128, 64, 6

rng = np.random.default_rng(23)
series = rng.standard_normal([BATCH * STEPS, TIMES, 4]).astype(np.float32)
labels = rng.integers(0, CLASSES, [BATCH * STEPS])


def dropped(is_slow: bool, hidden: Any) -> Any:
    layer = keras.layers.Dropout(0.2) if is_slow else keras.layers.SpatialDropout1D(0.2)
    return layer(hidden)


def train(is_slow: bool, clock: StepClock) -> None:
    inputs = keras.Input([TIMES, 4])
    hidden = dropped(is_slow, keras.layers.Dense(CHANNELS, activation="relu")(inputs))
    for _ in range(3):
        mixed = keras.layers.Dense(CHANNELS, activation="relu")(hidden)
        hidden = keras.layers.Add()([hidden, dropped(is_slow, mixed)])
    pooled = keras.layers.GlobalMaxPooling1D()(hidden)
    model = keras.Model(inputs, keras.layers.Dense(CLASSES, activation="softmax")(pooled))
    model.compile(optimizer="sgd", loss="sparse_categorical_crossentropy")
    ended = keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    model.fit(series, labels, batch_size=BATCH, verbose=0, shuffle=False, callbacks=[ended])
