"""Keras trains on one file of two batches after the other; slow: a `fit` for each file instead of one for all of them."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

BATCH, FEATURES, FILES, BATCHES_OF_FILE = 256, 256, 4, 2

tf.config.threading.set_intra_op_parallelism_threads(1)
folder = Path(tempfile.mkdtemp())
paths = [folder / f"{number}.npy" for number in range(FILES)]
for number, path in enumerate(paths):
    np.save(path, numbers(BATCH * BATCHES_OF_FILE, FEATURES, seed=number))


def fit_files(model: Any, ended: Any) -> None:
    for number in range(STEPS // BATCHES_OF_FILE):
        rows = np.load(paths[number % FILES])
        model.fit(rows, rows, batch_size=BATCH, verbose=0, callbacks=[ended])


def fit_once(model: Any, ended: Any) -> None:
    rows = np.concatenate([np.load(path) for path in paths])
    dataset = tf.data.Dataset.from_tensor_slices((rows, rows)).batch(BATCH, drop_remainder=True)
    dataset = dataset.cache().repeat().prefetch(2)
    model.fit(dataset, steps_per_epoch=STEPS, verbose=0, callbacks=[ended])


def train(is_slow: bool, clock: StepClock) -> None:
    layers = [tf.keras.layers.Dense(units, activation="relu") for units in (1024, 1024)]
    model = tf.keras.Sequential([*layers, tf.keras.layers.Dense(FEATURES)])
    model.compile(optimizer=tf.keras.optimizers.Adam(1e-3), loss="mse")
    ended = tf.keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    if is_slow:
        fit_files(model, ended)
    else:
        fit_once(model, ended)
