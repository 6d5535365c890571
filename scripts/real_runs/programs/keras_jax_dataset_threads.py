"""Keras `fit` on JAX with `DataParallel` over four CPU devices; slow: two threads of a `PyDataset` split texts into tokens in Python."""

from __future__ import annotations

import os
import re
from typing import Any

os.environ["KERAS_BACKEND"] = "jax"
os.environ["JAX_NUM_CPU_DEVICES"] = "4"

import keras
import numpy as np

from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, LENGTH, VOCABULARY = 64, 64, 4096

words = [f"{first}{second}" for first in "bdfgklmnprst" for second in ("a", "en", "io", "um")]
rng = np.random.default_rng(29)
texts = [" ".join(rng.choice(words, 400)) for _ in range(1024)]
parts_of_words = re.compile(r"[^aeiou\s]*[aeiou]+|[^aeiou\s]+")


def token_of(part: str) -> int:
    value = 7
    for letter in part.lower():
        value = (value * 31 + ord(letter)) % VOCABULARY
    return value


def tokens_of(text: str) -> list[int]:
    tokens = [token_of(part) for word in text.split() for part in parts_of_words.findall(word)]
    return [*tokens, *[0] * LENGTH][:LENGTH]


table = np.array([tokens_of(text) for text in texts], np.int32)
targets = (table[:, 0] % 8).astype(np.int32)


class Texts(keras.utils.PyDataset):  # type: ignore[misc]  # Keras has no types here
    def __init__(self, is_slow: bool) -> None:
        super().__init__(workers=2, use_multiprocessing=False, max_queue_size=4)
        self.is_slow = is_slow

    def __len__(self) -> int:
        return STEPS

    def __getitem__(self, number: int) -> Any:
        chosen = np.arange(number * BATCH, (number + 1) * BATCH) % len(texts)
        if self.is_slow:
            tokens = np.array([tokens_of(texts[row]) for row in chosen], np.int32)
        else:
            tokens = table[chosen]
        return tokens, targets[chosen]


def train(is_slow: bool, clock: StepClock) -> None:
    keras.distribution.set_distribution(keras.distribution.DataParallel())
    tokens = keras.Input([LENGTH], dtype="int32")
    hidden = keras.layers.Embedding(VOCABULARY, 64)(tokens)
    hidden = keras.layers.Conv1D(128, 5, activation="relu")(hidden)
    hidden = keras.layers.GlobalMaxPooling1D()(hidden)
    model = keras.Model(tokens, keras.layers.Dense(8, activation="softmax")(hidden))
    model.compile(optimizer="sgd", loss="sparse_categorical_crossentropy")
    ended = keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    model.fit(Texts(is_slow), epochs=1, verbose=0, shuffle=False, callbacks=[ended])
