"""Keras `fit` of a recurrent network on short texts; slow twice: all are padded to a length that none has, and a callback words the whole model with each loss."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, WORDS, WIDTH, LONGEST, PADDED, KINDS = 64, 4000, 80, 24, 48, 6

tf.config.threading.set_intra_op_parallelism_threads(1)
rng = np.random.default_rng(89)
texts = [
    rng.integers(1, WORDS, rng.integers(LONGEST // 2, LONGEST + 1)).tolist()
    for _ in range(BATCH * STEPS)
]
kinds = rng.integers(0, KINDS, BATCH * STEPS)


class Tracker(tf.keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types here
    """Writes each loss, so that it is known of which model it is."""

    def __init__(self, path: Path, *, is_slow: bool) -> None:
        super().__init__()
        self.path, self.is_slow, self.description = path, is_slow, ""

    def on_train_begin(self, logs: Any = None) -> None:
        self.description = self.model.to_json()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        model = self.model.to_json() if self.is_slow else hash(self.description)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"batch": batch, "loss": logs["loss"], "model": model}) + "\n")


def classifier(length: int) -> Any:
    layers = tf.keras.layers
    tokens = tf.keras.Input([length], dtype="int32")
    hidden = layers.LSTM(WIDTH)(layers.Embedding(WORDS, WIDTH)(tokens))
    for number in range(6):
        name = f"block_{number}"
        wide = layers.Dense(2 * WIDTH, activation="relu", name=f"{name}_wide")(hidden)
        hidden = layers.Add(name=f"{name}_sum")([hidden, layers.Dense(WIDTH, name=name)(wide)])
    return tf.keras.Model(tokens, layers.Dense(KINDS, activation="softmax")(hidden))


def train(is_slow: bool, clock: StepClock) -> None:
    length = PADDED if is_slow else LONGEST
    rows = tf.keras.utils.pad_sequences(texts, maxlen=length)
    model = classifier(length)
    model.compile(optimizer=tf.keras.optimizers.SGD(1e-2), loss="sparse_categorical_crossentropy")
    ended = tf.keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    with tempfile.TemporaryDirectory() as folder:
        tracker = Tracker(Path(folder) / "losses.jsonl", is_slow=is_slow)
        model.fit(rows, kinds, batch_size=BATCH, verbose=0, callbacks=[tracker, ended])
