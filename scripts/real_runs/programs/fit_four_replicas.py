"""Keras `fit` of dense layers on four replicas whose batches are ready: nothing slows it down."""

from __future__ import annotations

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import mirrored, numbers

BATCH, FEATURES = 512, 256

strategy = mirrored(4)
table = numbers(BATCH * 2, FEATURES)


def train(_is_slow: bool, clock: StepClock) -> None:
    dataset = tf.data.Dataset.from_tensor_slices((table, table)).batch(BATCH).cache().repeat()
    with strategy.scope():
        layers = [tf.keras.layers.Dense(units, activation="relu") for units in (1024, 1024)]
        model = tf.keras.Sequential([*layers, tf.keras.layers.Dense(FEATURES)])
        model.compile(optimizer="sgd", loss="mse")
    ended = tf.keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    model.fit(dataset.prefetch(2), steps_per_epoch=STEPS, verbose=0, callbacks=[ended])
