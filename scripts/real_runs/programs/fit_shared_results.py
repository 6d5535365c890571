"""Keras `fit` as one of several runs; slow: the loss of each batch goes to a file that all runs share, whose lock another one often holds."""

from __future__ import annotations

import fcntl
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

BATCH, LENGTH, FEATURES, UNITS = 96, 16, 32, 256

tf.config.threading.set_intra_op_parallelism_threads(1)
series, following = numbers(BATCH * 6, LENGTH, FEATURES), numbers(BATCH * 6, FEATURES, seed=8)
folder = Path(tempfile.mkdtemp())

OTHER_RUN = """
import fcntl, sys, time
number = 0
while True:
    with open(sys.argv[1], "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(f"other run,{number},0.5\\n")
        file.flush()
        time.sleep(0.009)
    number += 1
    time.sleep(0.003)
"""
"""Writes to a slow disk while it holds the lock."""


class SharedResults(tf.keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types here
    """Appends the loss of each batch to a table, one process at a time."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(f"this run,{batch},{logs['loss']}\n")


def train(is_slow: bool, clock: StepClock) -> None:
    dataset = tf.data.Dataset.from_tensor_slices((series, following)).batch(BATCH)
    dataset = dataset.cache().repeat().prefetch(2)
    layers = [
        tf.keras.Input([LENGTH, FEATURES]),
        tf.keras.layers.SimpleRNN(UNITS, return_sequences=True, unroll=True),
        tf.keras.layers.SimpleRNN(UNITS, unroll=True),
        tf.keras.layers.Dense(FEATURES),
    ]
    model = tf.keras.Sequential(layers)
    model.compile(optimizer="rmsprop", loss="mae")
    ended = tf.keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    shared = folder / "all_runs.csv"
    results = SharedResults(shared if is_slow else folder / "this_run.csv")
    other = subprocess.Popen([sys.executable, "-S", "-c", OTHER_RUN, str(shared)])
    try:
        model.fit(dataset, steps_per_epoch=STEPS, verbose=0, callbacks=[results, ended])
    finally:
        other.kill()
        other.wait()
