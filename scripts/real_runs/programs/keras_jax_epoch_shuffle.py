"""Keras `fit` on JAX from a `PyDataset` in epochs of six batches; slow: the samples themselves are shuffled after each epoch, as a list."""

from __future__ import annotations

import os
import random
from typing import Any

os.environ["KERAS_BACKEND"] = "jax"

import keras
import numpy as np

from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, SIDE, BATCHES, KINDS = 64, 28, 6, 10

rng = np.random.default_rng(37)
digits = rng.standard_normal([BATCH * BATCHES, SIDE, SIDE, 1], np.float32)
kinds = rng.integers(0, KINDS, BATCH * BATCHES, np.int32)


class Digits(keras.utils.PyDataset):  # type: ignore[misc]  # Keras has no types here
    """Batches in an order that is new in each epoch."""

    def __init__(self, is_slow: bool) -> None:
        super().__init__()
        self.is_slow = is_slow
        self.samples = list(zip(digits.tolist(), kinds.tolist(), strict=True)) if is_slow else []
        self.order = np.arange(len(kinds))
        self.pictures, self.kinds = digits, kinds

    def __len__(self) -> int:
        return BATCHES

    def __getitem__(self, number: int) -> Any:
        rows = slice(number * BATCH, (number + 1) * BATCH)
        chosen = rows if self.is_slow else self.order[rows]
        return self.pictures[chosen], self.kinds[chosen]

    def on_epoch_end(self) -> None:
        if self.is_slow:
            random.shuffle(self.samples)
            pictures, labels = zip(*self.samples, strict=True)
            self.pictures, self.kinds = np.array(pictures, "float32"), np.array(labels)
        else:
            rng.shuffle(self.order)


def train(is_slow: bool, clock: StepClock) -> None:
    layers = [
        keras.Input([SIDE, SIDE, 1]),
        keras.layers.Conv2D(24, 3, strides=2, activation="relu"),
        keras.layers.Conv2D(48, 3, activation="relu"),
        keras.layers.Flatten(),
        keras.layers.Dense(KINDS, activation="softmax"),
    ]
    model = keras.Sequential(layers)
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy")
    ended = keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    data = Digits(is_slow)
    model.fit(data, epochs=STEPS // BATCHES, verbose=0, shuffle=False, callbacks=[ended])
