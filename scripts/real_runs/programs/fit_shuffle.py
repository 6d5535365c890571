"""Keras `fit` on one device over little data; slow: each pass augments all rows and fills the shuffle buffer anew."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, FEATURES, STEPS_PER_PASS = 192, 256, 6

tf.config.threading.set_intra_op_parallelism_threads(1)
rows = tf.random.stateless_normal([BATCH * STEPS_PER_PASS, FEATURES], seed=[1, 2])
labels = tf.random.stateless_uniform([len(rows)], seed=[3, 4], maxval=10, dtype=tf.int64)
rotation = tf.random.stateless_normal([FEATURES, FEATURES], seed=[5, 6])


def augmented(row: Any, label: Any) -> tuple[Any, Any]:
    for _ in range(16):
        row = tf.tanh(tf.linalg.matvec(rotation, row))
    return row, label


def train(is_slow: bool, clock: StepClock) -> None:
    dataset = tf.data.Dataset.from_tensor_slices((rows, labels)).map(augmented)
    if not is_slow:
        dataset = dataset.cache()
    dataset = dataset.shuffle(len(rows)).batch(BATCH).repeat().prefetch(2)
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Dense(2048, activation="relu"),
            tf.keras.layers.Dense(2048, activation="relu"),
            tf.keras.layers.Dense(10),
        ]
    )
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=tf.keras.optimizers.SGD(0.01), loss=loss)
    ended = tf.keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    model.fit(dataset, steps_per_epoch=STEPS, verbose=0, callbacks=[ended])
