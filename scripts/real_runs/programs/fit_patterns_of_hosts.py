"""Keras `fit` on lines of logs from a `PyDataset`; slow: `re.sub` gets the pattern of each line's host as text, of which there are more than `re` keeps compiled, so that most are compiled again."""

from __future__ import annotations

import random
import re
import zlib
from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, HOSTS, WORDS, LENGTH, UNITS = 80, 4000, 4096, 24, 96

tf.config.threading.set_intra_op_parallelism_threads(1)
chance = random.Random(7)
actions = ("open", "close", "retry", "denied", "accepted", "timeout", "flush", "rotate")
lines = [
    (host, f"h{host:04}.site{host % 40}.net " + " ".join(chance.choices(actions, k=LENGTH - 2)))
    for host in (chance.randrange(HOSTS) for _ in range(BATCH * STEPS))
]


def pattern_of(host: int) -> str:
    """What the names of a host look like in its own lines."""
    return rf"\bh{host:04}(\.site{host % 40})?(\.net|\.org|\.local)?(:\d{{1,5}})?\b"


compiled = [re.compile(pattern_of(host)) for host in range(HOSTS)]


class Lines(tf.keras.utils.PyDataset):  # type: ignore[misc]  # Keras has no types here
    """Batches of lines as numbers of words; which ended badly is to be guessed."""

    def __init__(self, *, is_slow: bool) -> None:
        super().__init__()
        self.is_slow = is_slow

    def __len__(self) -> int:
        return STEPS

    def without_host(self, host: int, line: str) -> str:
        if self.is_slow:
            return re.sub(pattern_of(host), "HOST", line)
        return compiled[host].sub("HOST", line)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        rows = np.zeros([BATCH, LENGTH], np.int32)
        for row, (host, line) in zip(rows, lines[index * BATCH : (index + 1) * BATCH], strict=True):
            words = self.without_host(host, line).split()
            row[: len(words)] = [zlib.crc32(word.encode()) % WORDS for word in words]
        return rows, np.array([row[-3] % 2 for row in rows], np.float32)


def train(is_slow: bool, clock: StepClock) -> None:
    words = tf.keras.Input([LENGTH], dtype="int32")
    states = tf.keras.layers.Embedding(WORDS, UNITS)(words)
    for width in (3, 5):
        states = tf.keras.layers.Conv1D(UNITS, width, activation="relu")(states)
    pooled = tf.keras.layers.GlobalMaxPooling1D()(states)
    model = tf.keras.Model(words, tf.keras.layers.Dense(1, activation="sigmoid")(pooled))
    model.compile(optimizer=tf.keras.optimizers.SGD(1e-2), loss="binary_crossentropy")
    ended = tf.keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    model.fit(Lines(is_slow=is_slow), shuffle=False, verbose=0, callbacks=[ended])
