"""Keras `fit` on JAX of a model that finds fraud in a table, from a `PyDataset`; slow: `class_weight` is passed to `fit`, which looks the
weight of each row of a batch up in a loop of Python, not given by the data set with the rows.
"""

from __future__ import annotations

import os
from typing import Any

os.environ["KERAS_BACKEND"] = "jax"

import keras
import numpy as np

from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, FEATURES, ROWS = 32768, 24, 32768 * 8

rng = np.random.default_rng(17)
table = rng.standard_normal((ROWS, FEATURES)).astype(np.float32)
frauds = (rng.random(ROWS) < 0.02).astype(np.int32)
kind_weights = {0: 0.51, 1: 25.0}


class Payments(keras.utils.PyDataset):  # type: ignore[misc]  # Keras has no types here
    def __init__(self, weight_of_kind: Any = None) -> None:
        super().__init__()
        self.weight_of_kind = weight_of_kind

    def __len__(self) -> int:
        return STEPS

    def __getitem__(self, number: int) -> Any:
        rows = slice(number % 8 * BATCH, (number % 8 + 1) * BATCH)
        if self.weight_of_kind is None:
            return table[rows], frauds[rows]
        return table[rows], frauds[rows], self.weight_of_kind[frauds[rows]]


def train(is_slow: bool, clock: StepClock) -> None:
    model = keras.Sequential(
        [
            keras.Input([FEATURES]),
            keras.layers.Dense(48, activation="relu"),
            keras.layers.Dense(16, activation="relu"),
            keras.layers.Dense(1, activation="sigmoid"),
        ]
    )
    model.compile(optimizer="adam", loss="binary_crossentropy")
    ended = keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    if is_slow:
        model.fit(
            Payments(),
            class_weight=kind_weights,
            shuffle=False,
            verbose=0,
            callbacks=[ended],
        )
    else:
        weights = np.array([kind_weights[0], kind_weights[1]], np.float32)
        model.fit(Payments(weights), shuffle=False, verbose=0, callbacks=[ended])


if __name__ == "__main__":
    from scripts.real_runs.step_clock import run_blocks

    run_blocks(train)
