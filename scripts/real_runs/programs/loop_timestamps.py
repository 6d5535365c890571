"""A model of events reads its rows in chunks of four batches; slow: each time of a chunk is parsed by `strptime`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pandas as pd
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

BATCH, FEATURES, CHUNK, WIDTH = 1024, 61, 4, 256
FORMAT = "%Y-%m-%d %H:%M:%S"
tf.config.threading.set_intra_op_parallelism_threads(1)
ROWS = BATCH * CHUNK * 3
start = datetime(2024, 1, 1)
minutes = np.random.default_rng(5).integers(0, 500_000, ROWS).tolist()
times = [(start + timedelta(minutes=count)).strftime(FORMAT) for count in minutes]
values = numbers(ROWS, FEATURES)


def parsed_singly(texts: list[str]) -> Any:
    features = []
    for text in texts:
        moment = datetime.strptime(text, FORMAT)
        features.append((moment.hour / 24, moment.weekday() / 7, moment.month / 12))
    return np.array(features, np.float32)


def parsed(texts: list[str]) -> Any:
    moments = pd.to_datetime(pd.Series(texts), format=FORMAT).dt
    columns = [moments.hour / 24, moments.weekday / 7, moments.month / 12]
    return np.stack(columns, axis=1).astype(np.float32)


def batches(is_slow: bool) -> Iterator[Any]:
    chunk = BATCH * CHUNK
    # Good: once for all epochs.
    known = None if is_slow else parsed(times)
    while True:
        for first in range(0, ROWS, chunk):
            part = slice(first, first + chunk)
            moments = parsed_singly(times[part]) if known is None else known[part]
            rows = np.concatenate([values[part], moments], axis=1)
            for place in range(0, chunk, BATCH):
                yield rows[place : place + BATCH]


def train(is_slow: bool, clock: StepClock) -> None:
    model = tf.keras.Sequential(
        [tf.keras.layers.Dense(WIDTH, activation="relu") for _ in range(4)]
        + [tf.keras.layers.Dense(FEATURES + 3)]
    )
    model.build([None, FEATURES + 3])
    optimizer = tf.keras.optimizers.Adam(1e-3)
    optimizer.build(model.trainable_variables)

    @tf.function  # type: ignore[untyped-decorator]
    def train_step(rows: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(rows, training=True) - rows))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    source = batches(is_slow)
    for _ in range(STEPS):
        train_step(tf.constant(next(source)))
        clock.step_ended()
