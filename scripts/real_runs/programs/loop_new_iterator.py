"""A loop on one device over vectors; slow: every third step begins the data set anew, which fills its buffers again."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, FEATURES, BATCHES = 256, 512, 60

tf.config.threading.set_intra_op_parallelism_threads(1)
features = tf.random.stateless_normal([BATCH * BATCHES, FEATURES], seed=[1, 2])


def scaled(row: Any) -> Any:
    return row / tf.maximum(tf.norm(row), 1e-3)


def train(is_slow: bool, clock: StepClock) -> None:
    dataset = tf.data.Dataset.from_tensor_slices(features).map(scaled).cache()
    dataset = dataset.shuffle(BATCH * BATCHES, seed=1).batch(BATCH).repeat().prefetch(2)
    model = tf.keras.Sequential(
        [tf.keras.layers.Dense(1024, activation="relu"), tf.keras.layers.Dense(FEATURES)]
    )
    model.build([BATCH, FEATURES])
    optimizer = tf.keras.optimizers.SGD(0.01)
    optimizer.build(model.trainable_variables)

    def train_step(rows: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(rows, training=True) - rows))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    compiled_step = tf.function(train_step)
    iterator = iter(dataset)
    for number in range(STEPS):
        if is_slow and not clock.is_advised and number % 3 == 0:
            iterator = iter(dataset)
        compiled_step(next(iterator))
        clock.step_ended()
