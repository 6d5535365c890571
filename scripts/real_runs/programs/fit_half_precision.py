"""Keras `fit` of a network over series on one CPU; slow: the policy `mixed_float16` of a script that was written for a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

BATCH, TIMES, SENSORS, CLASSES = 96, 48, 12, 5

tf.config.threading.set_intra_op_parallelism_threads(1)
series = numbers(BATCH * 4, TIMES, SENSORS)
labels = np.random.default_rng(3).integers(0, CLASSES, [BATCH * 4])


def network() -> Any:
    inputs = tf.keras.Input([TIMES, SENSORS])
    hidden = tf.keras.layers.Conv1D(64, 3, padding="same", activation="relu")(inputs)
    for _ in range(3):
        mixed = tf.keras.layers.Dense(64, activation="relu")(hidden)
        gate = tf.keras.layers.Dense(64, activation="sigmoid")(hidden)
        hidden = tf.keras.layers.Add()([hidden, tf.keras.layers.Multiply()([mixed, gate])])
    pooled = tf.keras.layers.GlobalAveragePooling1D()(hidden)
    outputs = tf.keras.layers.Dense(CLASSES, dtype="float32", activation="softmax")(pooled)
    return tf.keras.Model(inputs, outputs)


def train(is_slow: bool, clock: StepClock) -> None:
    tf.keras.mixed_precision.set_global_policy("mixed_float16" if is_slow else "float32")
    model = network()
    model.compile(
        optimizer=tf.keras.optimizers.AdamW(1e-3),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    dataset = tf.data.Dataset.from_tensor_slices((series, labels)).cache().repeat()
    dataset = dataset.batch(BATCH, drop_remainder=True).prefetch(2)
    ended = tf.keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    model.fit(dataset, steps_per_epoch=STEPS, verbose=0, callbacks=[ended])
