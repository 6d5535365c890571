"""Keras `fit` of a tiny model; slow: each call trains on one batch, where a call could train on eight."""

from __future__ import annotations

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

BATCH, FEATURES, BATCHES = 32, 16, 8

tf.config.threading.set_intra_op_parallelism_threads(1)
table = numbers(BATCH, FEATURES)


def train(is_slow: bool, clock: StepClock) -> None:
    dataset = tf.data.Dataset.from_tensors((table, table)).cache().repeat().prefetch(16)
    layers = [tf.keras.layers.Dense(32, activation="relu"), tf.keras.layers.Dense(FEATURES)]
    model = tf.keras.Sequential(layers)
    steps = 1 if is_slow else BATCHES
    model.compile(optimizer="sgd", loss="mse", steps_per_execution=steps)

    def batch_ended(batch: int, logs: object) -> None:
        # A step of the clock is eight batches, in one call or in eight.
        if batch % BATCHES == BATCHES - 1:
            clock.step_ended()

    ended = tf.keras.callbacks.LambdaCallback(on_train_batch_end=batch_ended)
    model.fit(dataset, steps_per_epoch=STEPS * BATCHES, verbose=0, callbacks=[ended])
