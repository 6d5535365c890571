"""Keras `fit` on JAX with a data base of metrics; slow: each metric of each batch is committed by itself, which waits for the disk."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from pathlib import Path
from typing import Any

os.environ["KERAS_BACKEND"] = "jax"

import keras
import numpy as np

from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, SIDE, KINDS = 48, 28, 10

rng = np.random.default_rng(97)
pictures = rng.standard_normal([BATCH * STEPS, SIDE, SIDE, 1], np.float32)
kinds = rng.integers(0, KINDS, BATCH * STEPS, np.int32)


class Metrics(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types here
    """Keeps the metrics of all batches where other programs can ask for them."""

    def __init__(self, path: Path, *, is_slow: bool) -> None:
        super().__init__()
        self.base, self.is_slow = sqlite3.connect(path), is_slow
        self.base.execute("CREATE TABLE metrics (run TEXT, batch INTEGER, name TEXT, value REAL)")

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        for name, value in (logs or {}).items():
            row = ("run 1", batch, name, float(value))
            self.base.execute("INSERT INTO metrics VALUES (?, ?, ?, ?)", row)
            if self.is_slow:
                self.base.commit()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.base.commit()


def train(is_slow: bool, clock: StepClock) -> None:
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input([SIDE, SIDE, 1]),
            layers.Conv2D(24, 3, activation="relu"),
            layers.Conv2D(32, 3, strides=2, activation="relu"),
            layers.Flatten(),
            layers.Dense(KINDS, activation="softmax"),
        ]
    )
    metrics = ["accuracy", keras.metrics.SparseTopKCategoricalAccuracy(3)]
    sgd = keras.optimizers.SGD(1e-2)
    model.compile(optimizer=sgd, loss="sparse_categorical_crossentropy", metrics=metrics)
    ended = keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    with tempfile.TemporaryDirectory() as folder:
        kept = Metrics(Path(folder) / "metrics.db", is_slow=is_slow)
        model.fit(
            pictures, kinds, batch_size=BATCH, verbose=0, shuffle=False, callbacks=[kept, ended]
        )
        kept.base.close()
