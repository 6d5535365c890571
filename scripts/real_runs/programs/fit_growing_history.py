"""Keras `fit` on one device with a history of each batch; slow: all of it is written as JSON after every batch, not only what is new."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

BATCH, LENGTH, SENSORS = 64, 128, 9

tf.config.threading.set_intra_op_parallelism_threads(1)
series = numbers(BATCH * 4, LENGTH, SENSORS)
activities = (numbers(BATCH * 4, seed=2) > 0).astype("int32")
folder = Path(tempfile.mkdtemp())


class TrainingMonitor(tf.keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types here
    """Keeps the loss of each batch and the statistics of each channel on the disk."""

    def __init__(self, is_rewritten: bool) -> None:
        super().__init__()
        self.is_rewritten = is_rewritten
        self.path = folder / "history.json"
        self.path.write_text("", encoding="utf-8")
        self.history: list[dict[str, Any]] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        row: dict[str, Any] = {"batch": batch, "loss": float(logs["loss"])}
        for layer in self.model.layers:
            if isinstance(layer, tf.keras.layers.BatchNormalization):
                row[f"{layer.name}/mean"] = layer.moving_mean.numpy().tolist()
                row[f"{layer.name}/variance"] = layer.moving_variance.numpy().tolist()
        self.history.append(row)
        if self.is_rewritten:
            self.path.write_text(json.dumps(self.history, indent=2), encoding="utf-8")
        else:
            with self.path.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps(row) + "\n")


def train(is_slow: bool, clock: StepClock) -> None:
    dataset = tf.data.Dataset.from_tensor_slices((series, activities)).batch(BATCH).cache()
    model = tf.keras.Sequential()
    for channels in (48, 96):
        model.add(tf.keras.layers.Conv1D(channels, 5))
        model.add(tf.keras.layers.BatchNormalization())
        model.add(tf.keras.layers.ReLU())
    model.add(tf.keras.layers.GlobalAveragePooling1D())
    model.add(tf.keras.layers.Dense(2, activation="softmax"))
    model.compile(optimizer=tf.keras.optimizers.SGD(1e-3), loss="sparse_categorical_crossentropy")
    ended = tf.keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    callbacks = [TrainingMonitor(is_slow), ended]
    data = dataset.repeat().prefetch(2)
    model.fit(data, steps_per_epoch=STEPS, verbose=0, callbacks=callbacks)
