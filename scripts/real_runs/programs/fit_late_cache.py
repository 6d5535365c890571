"""Keras `fit` on two devices; slow: `cache` stands before the map that takes long, and a callback sorts the weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import mirrored, numbers

BATCH, FEATURES, BATCHES = 128, 256, 6

strategy = mirrored(2)
signals = numbers(BATCHES, BATCH, 1024)


def spectrum(rows: Any) -> tuple[Any, Any]:
    frames = tf.abs(tf.signal.stft(rows, 256, 64))
    features = tf.reshape(tf.math.log1p(frames), [BATCH, -1])[:, :FEATURES]
    return features, features


def batches_of(is_slow: bool) -> Any:
    rows = tf.data.Dataset.from_tensor_slices(signals)
    rows = rows.cache().map(spectrum) if is_slow else rows.map(spectrum).cache()
    return rows.repeat().prefetch(2)


def train(is_slow: bool, clock: StepClock) -> None:
    with strategy.scope():
        hidden = [tf.keras.layers.Dense(768, activation="relu") for _ in range(2)]
        model = tf.keras.Sequential([*hidden, tf.keras.layers.Dense(FEATURES)])
        model.compile(optimizer="sgd", loss="mse")
    medians: list[float] = []

    def watch_weights(batch: int, logs: object) -> None:
        medians.append(float(np.median(model.layers[1].kernel.numpy())))

    watching = tf.keras.callbacks.LambdaCallback(on_train_batch_end=watch_weights)
    ended = tf.keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    callbacks = [watching, ended] if is_slow else [ended]
    data = batches_of(is_slow)
    model.fit(data, steps_per_epoch=STEPS, verbose=0, callbacks=callbacks)
