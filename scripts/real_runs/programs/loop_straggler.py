"""A loop on two devices; slow: replica 1 multiplies matrices that no other replica does."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import mirrored

BATCH, FEATURES = 256, 512

strategy = mirrored(2)
features = tf.random.stateless_normal([BATCH * 4, FEATURES], seed=[1, 2])


def train(is_slow: bool, clock: StepClock) -> None:
    dataset = tf.data.Dataset.from_tensor_slices(features).batch(BATCH).cache().repeat()
    with strategy.scope():
        model = tf.keras.Sequential(
            [tf.keras.layers.Dense(1024, activation="relu"), tf.keras.layers.Dense(FEATURES)]
        )
        model.build([BATCH, FEATURES])
        optimizer = tf.keras.optimizers.SGD(0.01)
        optimizer.build(model.trainable_variables)

    def distances(outputs: Any) -> Any:
        products = outputs
        for _ in range(6):
            products = tf.tanh(tf.matmul(products, tf.matmul(outputs, outputs, transpose_a=True)))
        return tf.reduce_mean(products) * 1e-6

    def replica_step(rows: Any) -> Any:
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        with tf.GradientTape() as tape:
            outputs = model(rows, training=True)
            loss = tf.reduce_mean(tf.square(outputs - rows))
            if is_slow and tf.get_static_value(replica) == 1:
                loss += distances(outputs)
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
