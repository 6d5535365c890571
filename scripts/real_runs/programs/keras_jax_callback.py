"""Keras `fit` on JAX; slow: a callback counts large numbers in Python after each batch."""

from __future__ import annotations

import os
from typing import Any

os.environ["KERAS_BACKEND"] = "jax"

import keras
import numpy as np

from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, FEATURES = 256, 256

rows = np.random.default_rng(1).standard_normal([BATCH * STEPS, FEATURES]).astype(np.float32)


def large_numbers(batch: Any) -> int:
    return sum(abs(number) > 2.0 for number in batch.ravel().tolist())


def train(is_slow: bool, clock: StepClock) -> None:
    layers = [keras.layers.Dense(units, activation="relu") for units in (768, 768)]
    model = keras.Sequential([keras.Input([FEATURES]), *layers, keras.layers.Dense(FEATURES)])
    model.compile(optimizer="sgd", loss="mse")

    def batch_ended(batch: int, logs: object) -> None:
        if is_slow:
            large_numbers(rows[batch * BATCH : (batch + 1) * BATCH])
        clock.step_ended()

    ended = keras.callbacks.LambdaCallback(on_train_batch_end=batch_ended)
    model.fit(rows, rows, batch_size=BATCH, verbose=0, shuffle=False, callbacks=[ended])
