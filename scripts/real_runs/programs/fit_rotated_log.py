"""Keras `fit` of a forecast of loads; slow: the log of what each batch was like begins a new file for each of them, which renames the hundreds that are kept."""

from __future__ import annotations

import logging
import tempfile
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

BATCH, HOURS, METERS, UNITS, KEPT, FEW_BYTES, MANY_BYTES = 48, 24, 16, 80, 160, 2000, 20_000_000

tf.config.threading.set_intra_op_parallelism_threads(1)
loads, following = numbers(BATCH * 8, HOURS, METERS), numbers(BATCH * 8, METERS, seed=2)


class Logged(tf.keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types here
    """Writes what a batch was like, and what the first layer weighs."""

    def __init__(self, handler: logging.Handler) -> None:
        super().__init__()
        self.log = logging.getLogger("forecast")
        self.log.setLevel(logging.DEBUG)
        self.log.propagate = False
        self.log.handlers = [handler]

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        weights = self.model.trainable_variables[0].numpy()
        sizes = " ".join(f"{size:.5f}" for size in abs(weights).mean(axis=0)[:200])
        self.log.info("batch %d: loss %.5f, error %.5f", batch, logs["loss"], logs["mae"])
        self.log.debug("sizes of weights: %s", sizes)


def train(is_slow: bool, clock: StepClock) -> None:
    layers = tf.keras.layers
    inputs = tf.keras.Input([HOURS, METERS])
    hidden = layers.GRU(UNITS)(inputs)
    model = tf.keras.Model(inputs, layers.Dense(METERS)(hidden))
    model.compile(optimizer=tf.keras.optimizers.SGD(1e-3), loss="mse", metrics=["mae"])
    dataset = tf.data.Dataset.from_tensor_slices((loads, following)).batch(BATCH)
    dataset = dataset.cache().repeat().prefetch(2)
    ended = tf.keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "train.log"
        for number in range(1, KEPT + 1):
            path.with_name(f"train.log.{number}").write_text("an earlier day\n")
        size = FEW_BYTES if is_slow else MANY_BYTES
        handler = RotatingFileHandler(path, maxBytes=size, backupCount=KEPT)
        model.fit(dataset, steps_per_epoch=STEPS, verbose=0, callbacks=[Logged(handler), ended])
        handler.close()
