"""Keras `fit` on JAX of convolutions over arrays in memory, with two cheap callbacks: nothing slows it down."""

from __future__ import annotations

import os

os.environ["KERAS_BACKEND"] = "jax"

import keras
import numpy as np

from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, SIZE = 32, 32

images = np.random.default_rng(1).standard_normal([BATCH * STEPS, SIZE, SIZE, 3]).astype(np.float32)
labels = np.arange(BATCH * STEPS) % 10


def train(_is_slow: bool, clock: StepClock) -> None:
    layers = [keras.layers.Conv2D(24, 3, activation="relu") for _ in range(3)]
    ends = [keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(10, activation="softmax")]
    model = keras.Sequential([keras.Input([SIZE, SIZE, 3]), *layers, *ends])
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy")
    ended = keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    callbacks = [ended, keras.callbacks.TerminateOnNaN()]
    model.fit(images, labels, batch_size=BATCH, verbose=0, shuffle=False, callbacks=callbacks)
