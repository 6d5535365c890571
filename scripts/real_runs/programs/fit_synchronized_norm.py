"""Keras `fit` on two replicas; slow: each of ten layers normalizes its output over the rows of both replicas."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import mirrored, numbers

BATCH, FEATURES, DEPTH = 128, 256, 10

strategy = mirrored(2)
rows = numbers(BATCH, FEATURES)
dataset = tf.data.Dataset.from_tensors((rows, rows)).cache().repeat().prefetch(2)


def normalized_dense(is_synchronized: bool) -> list[Any]:
    return [
        tf.keras.layers.Dense(256, use_bias=False),
        tf.keras.layers.BatchNormalization(synchronized=is_synchronized),
        tf.keras.layers.ReLU(),
    ]


def train(is_slow: bool, clock: StepClock) -> None:
    with strategy.scope():
        blocks = [layer for _ in range(DEPTH) for layer in normalized_dense(is_slow)]
        model = tf.keras.Sequential([*blocks, tf.keras.layers.Dense(FEATURES)])
        model.compile(optimizer=tf.keras.optimizers.SGD(1e-3), loss="mse")
    ended = tf.keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    model.fit(dataset, steps_per_epoch=STEPS, verbose=0, callbacks=[ended])
