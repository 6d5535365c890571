"""Keras `fit` on JAX of a transformer; slow: a callback calls the model as a function on a few sentences after each batch."""

from __future__ import annotations

import os
from typing import Any

os.environ["KERAS_BACKEND"] = "jax"

import keras
import numpy as np

from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, LENGTH, WORDS, WIDTH = 32, 32, 1000, 96

rng = np.random.default_rng(31)
sentences = rng.integers(0, WORDS, [BATCH * STEPS, LENGTH], np.int32)
following = np.roll(sentences, -1, axis=1)
probes = sentences[:4]


def block(hidden: Any) -> Any:
    attended = keras.layers.MultiHeadAttention(4, WIDTH // 4)(hidden, hidden, use_causal_mask=True)
    hidden = keras.layers.LayerNormalization()(hidden + attended)
    widened = keras.layers.Dense(4 * WIDTH, activation="gelu")(hidden)
    return keras.layers.LayerNormalization()(hidden + keras.layers.Dense(WIDTH)(widened))


class Confidence(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types here
    """Keeps how sure the model is of the words that follow in some sentences."""

    def __init__(self) -> None:
        super().__init__()
        self.means: list[float] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        logits = self.model(probes, training=False)
        self.means.append(float(keras.ops.max(keras.ops.softmax(logits), axis=-1).mean()))


def train(is_slow: bool, clock: StepClock) -> None:
    tokens = keras.Input([LENGTH], dtype="int32")
    hidden = keras.layers.Embedding(WORDS, WIDTH)(tokens)
    for _ in range(2):
        hidden = block(hidden)
    model = keras.Model(tokens, keras.layers.Dense(WORDS)(hidden))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.SGD(1e-2), loss=loss)
    ended = keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    callbacks = [Confidence(), ended] if is_slow else [ended]
    model.fit(sentences, following, batch_size=BATCH, verbose=0, shuffle=False, callbacks=callbacks)
