"""Keras `fit` on JAX from a compressed HDF5 file; slow: rows are read one by one in an order of chance, each of which unpacks a block of the file."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

os.environ["KERAS_BACKEND"] = "jax"

import h5py
import keras
import numpy as np

from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, BATCHES, FEATURES, BLOCK, KINDS = 48, 24, 256, 16, 10

rng = np.random.default_rng(43)


def written(folder: Path) -> Path:
    """A file of rows in compressed blocks, as a preparation job leaves it."""
    path = folder / "rows.h5"
    with h5py.File(path, "w") as file:
        rows = rng.standard_normal([BATCH * BATCHES, FEATURES]).round(2).astype(np.float32)
        file.create_dataset("rows", data=rows, chunks=(BLOCK, FEATURES), compression="gzip")
        file["kinds"] = rng.integers(0, KINDS, BATCH * BATCHES, np.int32)
    return path


class Rows(keras.utils.PyDataset):  # type: ignore[misc]  # Keras has no types here
    """Batches of a file in an order of chance, of rows or of batches."""

    def __init__(self, path: Path, is_slow: bool, is_advised: bool) -> None:
        super().__init__()
        self.file, self.is_slow = h5py.File(path, "r"), is_slow
        self.kept = self.file["rows"][:] if is_advised else None
        self.kinds = self.file["kinds"][:]
        self.order = rng.permutation(BATCH * BATCHES if is_slow else BATCHES)

    def __len__(self) -> int:
        return BATCHES

    def __getitem__(self, number: int) -> Any:
        if self.is_slow:
            chosen = self.order[number * BATCH : (number + 1) * BATCH]
            if self.kept is not None:
                return self.kept[chosen], self.kinds[chosen]
            rows = np.stack([self.file["rows"][place] for place in chosen])
            return rows, self.kinds[chosen]
        start = self.order[number] * BATCH
        rows = self.file["rows"][start : start + BATCH]
        mixed = rng.permutation(BATCH)
        return rows[mixed], self.kinds[start : start + BATCH][mixed]


def train(is_slow: bool, clock: StepClock) -> None:
    layers = [keras.layers.Dense(1024, activation="relu") for _ in range(3)]
    model = keras.Sequential(
        [keras.Input([FEATURES]), *layers, keras.layers.Dense(KINDS, activation="softmax")]
    )
    sgd = keras.optimizers.SGD(1e-2, momentum=0.9)
    model.compile(optimizer=sgd, loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    ended = keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    with tempfile.TemporaryDirectory() as folder:
        data = Rows(written(Path(folder)), is_slow, clock.is_advised)
        model.fit(data, epochs=STEPS // BATCHES, verbose=0, shuffle=False, callbacks=[ended])
        data.file.close()
