"""A loop on two devices; slow: predictions are read after each step and ranked with NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import mirrored

BATCH, FEATURES, CLASSES = 384, 384, 1000

strategy = mirrored(2)
features = tf.random.stateless_normal([BATCH * 8, FEATURES], seed=[1, 2])
labels = tf.random.stateless_uniform([BATCH * 8], seed=[3, 4], maxval=CLASSES, dtype=tf.int64)


def train(is_slow: bool, clock: StepClock) -> None:
    dataset = tf.data.Dataset.from_tensor_slices((features, labels)).batch(BATCH).cache().repeat()
    with strategy.scope():
        model = tf.keras.Sequential(
            [tf.keras.layers.Dense(768, activation="relu"), tf.keras.layers.Dense(CLASSES)]
        )
        model.build([BATCH, FEATURES])
        optimizer = tf.keras.optimizers.Adam()
        optimizer.build(model.trainable_variables)
    loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=None)

    def replica_step(rows: Any, targets: Any) -> Any:
        with tf.GradientTape() as tape:
            scores = model(rows, training=True)
            loss = tf.reduce_mean(loss_of(targets, scores))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss, scores

    def train_step(rows: Any, targets: Any) -> Any:
        loss, scores = strategy.run(replica_step, args=(rows, targets))
        loss = strategy.reduce(tf.distribute.ReduceOp.MEAN, loss, axis=None)
        return loss, strategy.experimental_local_results(scores)

    compiled_step = tf.function(train_step)
    ranks = []
    for number, batch in enumerate(strategy.experimental_distribute_dataset(dataset.prefetch(2))):
        loss, scores = compiled_step(*batch)
        if is_slow:
            predictions = np.concatenate([part.numpy() for part in scores])
            order = np.argsort(predictions, axis=1, kind="stable")
            ranks.append((float(loss), order[:, -5:]))
        clock.step_ended()
        if number == STEPS - 1:
            break
