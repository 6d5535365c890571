"""Keras `fit` on JAX, each batch of which four threads read from a store; slow: they share one connection, so that one waits until the other has read."""

from __future__ import annotations

import os
import queue
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

os.environ["KERAS_BACKEND"] = "jax"
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"

import keras
import numpy as np

from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, PLACES, CHANNELS, WIDTH, LAYERS, KINDS, PARTS, WAY_S = 64, 96, 8, 704, 10, 5, 4, 0.0022

rng = np.random.default_rng(29)
signals = rng.standard_normal([BATCH * 8, PLACES, CHANNELS], np.float32)
kinds = rng.integers(0, KINDS, BATCH * 8, np.int32)


class Connection:
    """A way to the store, which one thread at a time uses."""

    def read(self, first: int, last: int) -> Any:
        """Rows of the store, which is far away."""
        time.sleep(WAY_S)
        return signals[first:last].copy(), kinds[first:last]


class Signals(keras.utils.PyDataset):  # type: ignore[misc]  # Keras has no types here
    """Batches of the store, whose parts threads read."""

    def __init__(self, connections: int) -> None:
        super().__init__()
        self.threads = ThreadPoolExecutor(PARTS)
        self.free: queue.Queue[Connection] = queue.Queue()
        for _ in range(connections):
            self.free.put(Connection())

    def __len__(self) -> int:
        return STEPS

    def part(self, start: int) -> Any:
        connection = self.free.get()
        try:
            return connection.read(start, start + BATCH // PARTS)
        finally:
            self.free.put(connection)

    def __getitem__(self, number: int) -> Any:
        first = number % 8 * BATCH
        parts = self.threads.map(self.part, range(first, first + BATCH, BATCH // PARTS))
        rows, labels = (np.concatenate(part) for part in zip(*parts, strict=True))
        return rows, labels


def train(is_slow: bool, clock: StepClock) -> None:
    inputs = keras.Input([PLACES, CHANNELS])
    hidden = keras.layers.Dense(WIDTH, activation="relu")(keras.layers.Flatten()(inputs))
    for _ in range(LAYERS):
        more = keras.layers.Dense(WIDTH, activation="relu")(hidden)
        hidden = keras.layers.LayerNormalization()(hidden + more)
    model = keras.Model(inputs, keras.layers.Dense(KINDS, activation="softmax")(hidden))
    model.compile(optimizer=keras.optimizers.SGD(1e-2), loss="sparse_categorical_crossentropy")
    ended = keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    model.fit(Signals(1 if is_slow else PARTS), shuffle=False, verbose=0, callbacks=[ended])
