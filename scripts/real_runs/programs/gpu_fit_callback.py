"""Keras `fit` on a GPU; slow: a callback computes statistics of the weights after each batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.gpu_training import WIDTH, model_of, sized
from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

BATCH, FEATURES = sized(256, 16), 256
rows = numbers(BATCH, FEATURES)


class Statistics(tf.keras.callbacks.Callback):  # type: ignore[misc]  # TensorFlow has no types here
    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        for layer in self.model.layers:
            np.percentile(layer.kernel[:64], [1, 99])


def train(is_slow: bool, clock: StepClock) -> None:
    data = tf.data.Dataset.from_tensors(tf.constant(rows)).repeat(STEPS)
    data = data.map(lambda batch: (batch, batch)).prefetch(2)
    model, _ = model_of(WIDTH, 6, FEATURES)
    model.compile(optimizer="sgd", loss="mse")
    ended = tf.keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    model.fit(data, epochs=1, verbose=0, callbacks=[*([Statistics()] if is_slow else []), ended])
