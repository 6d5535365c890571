"""Keras `fit` on two devices of a tagger of pictures; slow: precision and recall of each class are metrics of their own, not one
metric that keeps a value for each class.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import mirrored, numbers

BATCH, SIDE, CLASSES = 96, 32, 24

strategy = mirrored(2)
pictures = numbers(BATCH * 4, SIDE, SIDE, 3)
labels = np.eye(CLASSES, dtype=np.float32)[np.random.default_rng(2).integers(0, CLASSES, BATCH * 4)]


def metrics_of(is_slow: bool) -> list[Any]:
    """What is shown of each class."""
    if not is_slow:
        return [keras.metrics.F1Score(average=None)]
    metrics: list[Any] = []
    for number in range(CLASSES):
        metrics.append(keras.metrics.Precision(class_id=number, name=f"precision_{number}"))
        metrics.append(keras.metrics.Recall(class_id=number, name=f"recall_{number}"))
    return metrics


def train(is_slow: bool, clock: StepClock) -> None:
    dataset = (
        tf.data.Dataset.from_tensor_slices((pictures, labels))
        .batch(BATCH)
        .cache()
        .repeat()
        .prefetch(2)
    )
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.layers.Conv2D(48, 3, strides=2, activation="relu"),
                keras.layers.Conv2D(48, 3, strides=2, activation="relu"),
                keras.layers.GlobalAveragePooling2D(),
                keras.layers.Dense(CLASSES, activation="softmax"),
            ]
        )
        model.compile(
            optimizer="adam", loss="categorical_crossentropy", metrics=metrics_of(is_slow)
        )
    ended = keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    model.fit(dataset, steps_per_epoch=STEPS, verbose=0, callbacks=[ended])
