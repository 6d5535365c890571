"""Keras `fit` on two devices; slow: a callback orders the weights with NumPy after every batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import mirrored

BATCH, FEATURES = 256, 256

strategy = mirrored(2)
features = tf.random.stateless_normal([BATCH * 8, FEATURES], seed=[1, 2])
labels = tf.random.stateless_uniform([BATCH * 8], seed=[3, 4], maxval=10, dtype=tf.int64)


def train(is_slow: bool, clock: StepClock) -> None:
    dataset = tf.data.Dataset.from_tensor_slices((features, labels)).repeat()
    dataset = dataset.batch(BATCH, drop_remainder=True).prefetch(2)
    with strategy.scope():
        model = tf.keras.Sequential(
            [
                tf.keras.layers.Dense(1024, activation="relu"),
                tf.keras.layers.Dense(1024, activation="relu"),
                tf.keras.layers.Dense(10),
            ]
        )
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer="adam", loss=loss)
    medians: list[Any] = []

    def watch_weights(batch: int, logs: object) -> None:
        weights = np.concatenate([layer.kernel.numpy().ravel() for layer in model.layers[::2]])
        medians.append(np.sort(weights, kind="stable")[len(weights) // 2])

    watching = tf.keras.callbacks.LambdaCallback(on_train_batch_end=watch_weights)
    ended = tf.keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    callbacks = [watching, ended] if is_slow else [ended]
    model.fit(dataset, steps_per_epoch=STEPS, verbose=0, callbacks=callbacks)
