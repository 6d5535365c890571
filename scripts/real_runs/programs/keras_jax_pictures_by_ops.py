"""Keras `fit` on JAX from a `PyDataset`; slow: each picture is moved and lit by ops of the backend, one after the other, not the batch by NumPy."""

from __future__ import annotations

import os
from typing import Any

os.environ["KERAS_BACKEND"] = "jax"

import keras
import numpy as np
from keras import ops

from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, SIDE, MARGIN, BATCHES, KINDS = 32, 32, 4, 8, 10

rng = np.random.default_rng(19)
pictures = rng.random([BATCH * BATCHES, SIDE, SIDE, 3], np.float32)
kinds = rng.integers(0, KINDS, BATCH * BATCHES, np.int32)


def augmented(picture: Any, top: int, left: int, is_mirrored: bool, light: float) -> Any:
    """One picture that is moved, mirrored and lit by chance."""
    margins = [(MARGIN, MARGIN), (MARGIN, MARGIN), (0, 0)]
    picture = ops.pad(ops.convert_to_tensor(picture), margins)
    picture = ops.slice(picture, (top, left, 0), (SIDE, SIDE, 3))
    if is_mirrored:
        picture = ops.flip(picture, axis=1)
    return ops.clip(picture * light, 0.0, 1.0)


def augmented_batch(batch: Any, tops: Any, lefts: Any, mirrored: Any, lights: Any) -> Any:
    """The same for all pictures of a batch, in NumPy."""
    batch = np.pad(batch, [(0, 0), (MARGIN, MARGIN), (MARGIN, MARGIN), (0, 0)])
    windows = np.lib.stride_tricks.sliding_window_view(batch, (SIDE, SIDE), axis=(1, 2))
    moved = windows[np.arange(len(batch)), tops, lefts].transpose(0, 2, 3, 1)
    moved = np.where(mirrored[:, None, None, None], moved[:, :, ::-1], moved)
    return np.clip(moved * lights[:, None, None, None], 0.0, 1.0, dtype=np.float32)


class Pictures(keras.utils.PyDataset):  # type: ignore[misc]  # Keras has no types here
    """Batches of pictures that are never twice the same."""

    def __init__(self, is_slow: bool) -> None:
        super().__init__()
        self.is_slow = is_slow

    def __len__(self) -> int:
        return STEPS

    def __getitem__(self, number: int) -> Any:
        start = number % BATCHES * BATCH
        batch, labels = pictures[start : start + BATCH], kinds[start : start + BATCH]
        tops, lefts = rng.integers(0, 2 * MARGIN, [2, BATCH])
        mirrored, lights = rng.random(BATCH) < 0.5, rng.uniform(0.7, 1.3, BATCH).astype(np.float32)
        chances = (tops, lefts, mirrored, lights)
        if self.is_slow:
            moved = [augmented(*one) for one in zip(batch, *chances, strict=True)]
            return ops.convert_to_numpy(ops.stack(moved)), labels
        return augmented_batch(batch, *chances), labels


def train(is_slow: bool, clock: StepClock) -> None:
    layers = [
        keras.Input([SIDE, SIDE, 3]),
        keras.layers.Conv2D(48, 3, strides=2, activation="relu"),
        keras.layers.Conv2D(96, 3, strides=2, activation="relu"),
        keras.layers.GlobalAveragePooling2D(),
        keras.layers.Dense(KINDS, activation="softmax"),
    ]
    model = keras.Sequential(layers)
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy")
    ended = keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    model.fit(Pictures(is_slow), verbose=0, shuffle=False, callbacks=[ended])
