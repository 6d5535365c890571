"""A loop on two devices; slow: the loss weighs each row with `tf.numpy_function` inside the step."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import mirrored

BATCH, FEATURES = 384, 512

strategy = mirrored(2)
features = tf.random.stateless_normal([BATCH * 4, FEATURES], seed=[1, 2])


def weights_of_rows(rows: Any) -> Any:
    ranks = np.argsort(np.argsort(rows, axis=1, kind="stable"), axis=1, kind="stable")
    return (1.0 + ranks.std(axis=1) / ranks.shape[1]).astype(np.float32)


def weighed(rows: Any) -> tuple[Any, Any]:
    weights = tf.numpy_function(weights_of_rows, [rows], tf.float32)
    return rows, tf.ensure_shape(weights, [None])


def train(is_slow: bool, clock: StepClock) -> None:
    dataset = tf.data.Dataset.from_tensor_slices(features).batch(BATCH)
    if clock.is_advised:
        dataset = dataset.map(weighed)
    dataset = dataset.cache().repeat()
    with strategy.scope():
        model = tf.keras.Sequential(
            [tf.keras.layers.Dense(1024, activation="relu"), tf.keras.layers.Dense(FEATURES)]
        )
        model.build([BATCH, FEATURES])
        optimizer = tf.keras.optimizers.SGD(0.01)
        optimizer.build(model.trainable_variables)

    def replica_step(batch: Any) -> Any:
        rows, weights = batch if clock.is_advised else (batch, tf.ones([tf.shape(batch)[0]]))
        if is_slow and not clock.is_advised:
            weights = tf.numpy_function(weights_of_rows, [rows], tf.float32)
        with tf.GradientTape() as tape:
            errors = tf.reduce_mean(tf.square(model(rows, training=True) - rows), axis=1)
            loss = tf.reduce_mean(errors * weights)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    def train_step(rows: Any) -> Any:
        losses = strategy.run(replica_step, args=(rows,))
        return strategy.reduce(tf.distribute.ReduceOp.MEAN, losses, axis=None)

    compiled_step = tf.function(train_step)
    iterator = iter(strategy.experimental_distribute_dataset(dataset.prefetch(2)))
    for _ in range(STEPS):
        compiled_step(next(iterator))
        clock.step_ended()
