"""Keras `fit` on a GPU; slow: `tf.py_function` changes each batch in the input pipeline."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.gpu_training import WIDTH, model_of, sized
from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

BATCH, FEATURES = sized(256, 16), 256
rows = numbers(BATCH, FEATURES)


def changed(batch: Any) -> Any:
    return np.mean([np.sort(np.sin(batch.numpy() + part), axis=1) for part in range(40)], axis=0)


def train(is_slow: bool, clock: StepClock) -> None:
    data = tf.data.Dataset.from_tensors(rows).repeat(STEPS)
    if is_slow:
        data = data.map(
            lambda batch: tf.ensure_shape(tf.py_function(changed, [batch], tf.float32), rows.shape)
        )
    data = data.map(lambda batch: (batch, batch)).prefetch(2)
    model, _ = model_of(WIDTH, 6, FEATURES)
    model.compile(optimizer="sgd", loss="mse")
    ended = tf.keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    model.fit(data, epochs=1, verbose=0, callbacks=[ended])
