"""Keras `fit` on one device; slow: hits of 40 labels are counted at 100 thresholds in every step."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

BATCH, FEATURES, LABELS = 512, 256, 40

tf.config.threading.set_intra_op_parallelism_threads(1)
rows = numbers(BATCH, FEATURES)
labels = (numbers(BATCH, LABELS, seed=2) > 1).astype("float32")
dataset = tf.data.Dataset.from_tensors((rows, labels)).cache().repeat().prefetch(2)


def counts_at_thresholds() -> list[Any]:
    """Precision and recall where rare labels are decided: at thresholds close to 0."""
    thresholds = np.geomspace(1e-3, 0.9, 100).tolist()
    return [
        tf.keras.metrics.Precision(thresholds=thresholds),
        tf.keras.metrics.Recall(thresholds=thresholds),
    ]


def train(is_slow: bool, clock: StepClock) -> None:
    layers = [tf.keras.layers.Dense(units, activation="relu") for units in (512, 512)]
    model = tf.keras.Sequential([*layers, tf.keras.layers.Dense(LABELS, activation="sigmoid")])
    metrics = counts_at_thresholds() if is_slow else ["binary_accuracy"]
    optimizer = tf.keras.optimizers.SGD(1e-3)
    model.compile(optimizer=optimizer, loss="binary_crossentropy", metrics=metrics)
    ended = tf.keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    model.fit(dataset, steps_per_epoch=STEPS, verbose=0, callbacks=[ended])
