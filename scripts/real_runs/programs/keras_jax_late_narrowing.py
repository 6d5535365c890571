"""Keras `fit` on JAX of a network that colours pictures; slow: layers make hidden pictures larger before the convolution of single pixels that takes most of their channels away, not behind it."""

from __future__ import annotations

import os
import tempfile
from typing import Any

os.environ["KERAS_BACKEND"] = "jax"

import jax
import keras
import numpy as np

from scripts.real_runs.step_clock import STEPS, StepClock, run_blocks

BATCH, SIDE, KINDS = 12, 32, 24

rng = np.random.default_rng(61)
grey = rng.standard_normal([STEPS * BATCH, SIDE, SIDE, 1], np.float32)
colours = rng.integers(0, KINDS, [STEPS * BATCH, SIDE, SIDE], np.int32)


def larger(hidden: Any, channels: int, is_slow: bool) -> Any:
    """Twice as high and wide, with fewer channels."""
    upsampling = keras.layers.UpSampling2D(2)
    narrowing = keras.layers.Conv2D(channels, 1, activation="relu")
    return narrowing(upsampling(hidden)) if is_slow else upsampling(narrowing(hidden))


def train(is_slow: bool, clock: StepClock) -> None:
    inputs = keras.Input([SIDE, SIDE, 1])
    hidden = keras.layers.Conv2D(96, 4, strides=4, activation="relu")(inputs)
    hidden = keras.layers.Conv2D(384, 2, strides=2, activation="relu")(hidden)
    for _ in range(2):
        hidden = hidden + keras.layers.Dense(384, activation="gelu")(hidden)
    for channels in (192, 96, 24):
        hidden = larger(hidden, channels, is_slow)
    scores = keras.layers.Conv2D(KINDS, 1)(hidden)
    model = keras.Model(inputs, scores)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.Adam(1e-3), loss=loss)
    ended = keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    model.fit(grey, colours, batch_size=BATCH, verbose=0, callbacks=[ended])


if __name__ == "__main__":
    # The first run of a process takes longer, and the first that is recorded, too.
    with jax.profiler.trace(tempfile.mkdtemp()):
        train(False, StepClock())
    run_blocks(train)
