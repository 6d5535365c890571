"""Keras `fit` of a `PyDataset`; slow: each batch is read from lines of JSON."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import mirrored, numbers

BATCH, FEATURES = 128, 128

strategy = mirrored(2)
table = numbers(BATCH, FEATURES)
lines = [
    json.dumps({"row": row.tolist(), "name": f"row {place}"}) for place, row in enumerate(table)
]


class Batches(tf.keras.utils.PyDataset):  # type: ignore[misc]  # TensorFlow has no types here
    """The same batch for each step."""

    def __init__(self, is_slow: bool) -> None:
        super().__init__()
        self.is_slow = is_slow

    def __len__(self) -> int:
        return STEPS

    def __getitem__(self, _index: int) -> Any:
        rows = table
        if self.is_slow:
            rows = np.array([json.loads(line)["row"] for line in lines], np.float32)
        return rows, rows


def train(is_slow: bool, clock: StepClock) -> None:
    with strategy.scope():
        layers = [tf.keras.layers.Dense(units, activation="relu") for units in (512, 512)]
        model = tf.keras.Sequential([*layers, tf.keras.layers.Dense(FEATURES)])
        model.compile(optimizer="sgd", loss="mse")
    ended = tf.keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    model.fit(Batches(is_slow), verbose=0, shuffle=False, callbacks=[ended])
