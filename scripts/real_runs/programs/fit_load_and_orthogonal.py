"""Keras `fit` of a mixer of patches on two devices; slow: (a) a callback measures the load of the processor for ten milliseconds
after each batch, not since the last one, (b) the 640 columns of kernels of 128
rows are pushed apart, which cannot all be orthogonal, not the rows.
"""

from __future__ import annotations

from typing import Any

import keras
import psutil
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import mirrored, numbers

BATCH, PATCHES, SIZE, UNITS = 32, 32, 128, 640

strategy = mirrored(2)
patches = numbers(BATCH * 4, PATCHES, SIZE)
targets = numbers(BATCH * 4, 10, seed=2)


class LoadLog(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types here
    """Keeps the load of the processor beside the loss."""

    def __init__(self, interval: float | None) -> None:
        super().__init__()
        self.interval = interval
        self.lines: list[tuple[int, float, float]] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        load = psutil.cpu_percent(interval=self.interval)
        self.lines.append((batch, load, logs["loss"]))


def train(is_slow: bool, clock: StepClock) -> None:
    waits = is_slow
    mode = "columns" if is_slow else "rows"
    dataset = (
        tf.data.Dataset.from_tensor_slices((patches, targets))
        .batch(BATCH)
        .cache()
        .repeat()
        .prefetch(2)
    )
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.layers.Dense(
                    UNITS,
                    activation="gelu",
                    kernel_regularizer=keras.regularizers.OrthogonalRegularizer(1e-3, mode),
                ),
                keras.layers.Dense(SIZE),
                keras.layers.Permute((2, 1)),
                keras.layers.Dense(PATCHES, activation="gelu"),
                keras.layers.Permute((2, 1)),
                keras.layers.Dense(
                    UNITS,
                    activation="gelu",
                    kernel_regularizer=keras.regularizers.OrthogonalRegularizer(1e-3, mode),
                ),
                keras.layers.GlobalAveragePooling1D(),
                keras.layers.Dense(10),
            ]
        )
        model.compile(optimizer="adam", loss="mse")
    log = LoadLog(0.01 if waits else None)
    ended = keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    model.fit(dataset, steps_per_epoch=STEPS, verbose=0, callbacks=[log, ended])
