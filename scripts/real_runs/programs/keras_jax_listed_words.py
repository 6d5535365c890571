"""Keras `fit` on JAX from a `PyDataset`; slow: the number of each word is its place in a list, which is searched for it, not looked up in a dictionary."""

from __future__ import annotations

import os
from typing import Any

os.environ["KERAS_BACKEND"] = "jax"

import keras
import numpy as np

from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, PLACES, WORDS, WIDTH, KINDS = 32, 20, 2500, 96, 6

rng = np.random.default_rng(61)
vocabulary = [f"word{number}" for number in range(WORDS)]
numbers = {word: number for number, word in enumerate(vocabulary)}
texts = [[f"word{number}" for number in one] for one in rng.integers(0, WORDS, [BATCH * 8, PLACES])]
kinds = rng.integers(0, KINDS, BATCH * 8, np.int32)


class Texts(keras.utils.PyDataset):  # type: ignore[misc]  # Keras has no types here
    """Texts as numbers of their words."""

    def __init__(self, is_slow: bool) -> None:
        super().__init__()
        self.is_slow = is_slow

    def __len__(self) -> int:
        return STEPS

    def __getitem__(self, number: int) -> Any:
        start = number % 8 * BATCH
        chosen = texts[start : start + BATCH]
        if self.is_slow:
            found = [[vocabulary.index(word) for word in text] for text in chosen]
        else:
            found = [[numbers[word] for word in text] for text in chosen]
        return np.array(found, np.int32), kinds[start : start + BATCH]


def train(is_slow: bool, clock: StepClock) -> None:
    inputs = keras.Input([PLACES], dtype="int32")
    hidden = keras.layers.Embedding(WORDS, WIDTH)(inputs)
    for _ in range(2):
        seen = keras.layers.MultiHeadAttention(4, WIDTH // 4)(hidden, hidden)
        hidden = keras.layers.LayerNormalization()(hidden + seen)
        more = keras.layers.Dense(WIDTH)(keras.layers.Dense(2 * WIDTH, activation="gelu")(hidden))
        hidden = keras.layers.LayerNormalization()(hidden + more)
    pooled = keras.layers.GlobalAveragePooling1D()(hidden)
    model = keras.Model(inputs, keras.layers.Dense(KINDS)(pooled))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.SGD(1e-3), loss=loss)
    ended = keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    model.fit(Texts(is_slow), shuffle=False, verbose=0, callbacks=[ended])
