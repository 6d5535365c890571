"""Keras `fit` of an autoencoder; slow: a callback packs the folder of the run, to be stored elsewhere, after every sixth batch, not at the end."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

BATCH, FEATURES, UNITS, APART, LOGS, LINES = 128, 256, 768, 6, 8, 12000

tf.config.threading.set_intra_op_parallelism_threads(1)
rows = tf.constant(numbers(BATCH * 4, FEATURES))


class Artifacts(tf.keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types here
    """Keeps a copy of what the run has written so far."""

    def __init__(self, run: Path, store: Path, *, is_slow: bool) -> None:
        super().__init__()
        self.run, self.store, self.is_slow = run, store, is_slow

    def pack(self) -> None:
        shutil.make_archive(str(self.store / "run"), "zip", self.run)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self.is_slow and batch % APART == APART - 1:
            self.pack()

    def on_train_end(self, logs: Any = None) -> None:
        self.pack()


def write_logs(run: Path) -> None:
    """What a run that goes on has written before."""
    for number in range(LOGS):
        lines = (f"worker {number} step {line} loss {1 / (line + 1):.5f}" for line in range(LINES))
        (run / f"worker-{number}.log").write_text("\n".join(lines), "utf-8")


def train(is_slow: bool, clock: StepClock) -> None:
    hidden = [tf.keras.layers.Dense(UNITS, activation="selu") for _ in range(3)]
    model = tf.keras.Sequential(
        [tf.keras.Input([FEATURES]), *hidden, tf.keras.layers.Dense(FEATURES)]
    )
    model.compile(optimizer=tf.keras.optimizers.SGD(1e-2, momentum=0.9), loss="mae")
    dataset = tf.data.Dataset.from_tensor_slices((rows, rows)).batch(BATCH).cache().repeat()
    ended = tf.keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    with tempfile.TemporaryDirectory() as run, tempfile.TemporaryDirectory() as store:
        write_logs(Path(run))
        artifacts = Artifacts(Path(run), Path(store), is_slow=is_slow)
        model.fit(
            dataset.prefetch(2), steps_per_epoch=STEPS, verbose=0, callbacks=[artifacts, ended]
        )
