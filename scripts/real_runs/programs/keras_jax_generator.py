"""Keras `fit` on JAX; slow: the generator makes each batch in Python."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

os.environ["KERAS_BACKEND"] = "jax"

import keras
import numpy as np

from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, FEATURES = 256, 256


def made() -> Any:
    rows = [[(row * place) % 89 / 89 for place in range(FEATURES)] for row in range(BATCH)]
    return np.asarray(rows, np.float32)


def train(is_slow: bool, clock: StepClock) -> None:
    ready = made()

    def batches() -> Iterator[Any]:
        while True:
            rows = made() if is_slow else ready
            yield rows, rows

    layers = [keras.layers.Dense(units, activation="relu") for units in (768, 768)]
    model = keras.Sequential([keras.Input([FEATURES]), *layers, keras.layers.Dense(FEATURES)])
    model.compile(optimizer="sgd", loss="mse")
    ended = keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    model.fit(batches(), steps_per_epoch=STEPS, verbose=0, callbacks=[ended])
