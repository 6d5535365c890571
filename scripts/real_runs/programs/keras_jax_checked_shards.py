"""Keras `fit` on JAX, from files of many spectra; slow: the checksum of a whole file is taken for each batch from it, not once."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path
from typing import Any

os.environ["KERAS_BACKEND"] = "jax"

import jax
import keras
import numpy as np

from scripts.real_runs.step_clock import STEPS, StepClock, run_blocks

FILES, ROWS, POINTS, BATCH, WIDTH, BLOCKS = 3, 12_000, 256, 96, 96, 3

rng = np.random.default_rng(53)
folder = Path(tempfile.mkdtemp())


def sum_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def written(number: int) -> tuple[Path, str]:
    """A file of spectra, and its checksum."""
    path = folder / f"spectra-{number}.npy"
    np.save(path, rng.standard_normal([ROWS, POINTS], np.float32))
    return path, sum_of(path)


class Spectra(keras.utils.PyDataset):  # type: ignore[misc]  # Keras has no types here
    """Batches of files, none of which may be damaged."""

    def __init__(self, files: list[tuple[Path, str]], is_slow: bool) -> None:
        super().__init__()
        self.files, self.is_slow = files, is_slow
        if not is_slow:
            for path, wanted in files:
                self.check(path, wanted)

    def check(self, path: Path, wanted: str) -> None:
        if sum_of(path) != wanted:
            raise ValueError(f"{path} is damaged")

    def __len__(self) -> int:
        return STEPS

    def __getitem__(self, number: int) -> Any:
        path, wanted = self.files[number % FILES]
        if self.is_slow:
            self.check(path, wanted)
        first = number // FILES * BATCH % (ROWS - BATCH)
        rows = np.load(path, mmap_mode="r")[first : first + BATCH]
        return rows[:, :, None], rows.max(axis=1)


def train(is_slow: bool, clock: StepClock) -> None:
    inputs = keras.Input([POINTS, 1])
    hidden = keras.layers.Conv1D(WIDTH, 16, strides=16)(inputs)
    for _ in range(BLOCKS):
        places = keras.layers.Permute([2, 1])(hidden)
        places = keras.layers.Dense(POINTS // 16, activation="gelu")(places)
        hidden = hidden + keras.layers.Permute([2, 1])(places)
        more = keras.layers.Dense(2 * WIDTH, activation="gelu")(hidden)
        hidden = keras.layers.LayerNormalization()(hidden + keras.layers.Dense(WIDTH)(more))
    pooled = keras.layers.GlobalAveragePooling1D()(hidden)
    model = keras.Model(inputs, keras.layers.Dense(1)(pooled))
    model.compile(optimizer=keras.optimizers.SGD(1e-3), loss="mae")
    ended = keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    model.fit(Spectra(files, is_slow), shuffle=False, verbose=0, callbacks=[ended])


if __name__ == "__main__":
    files = [written(number) for number in range(FILES)]
    # The first run of a process takes longer, and the first that is recorded, too.
    with jax.profiler.trace(tempfile.mkdtemp()):
        train(False, StepClock())
    run_blocks(train)
