"""A loop over four replicas that evaluates after each fourth step; slow: the data set of the evaluation maps and shuffles rows anew each time."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import dense, mirrored, numbers

BATCH, FEATURES, ROWS, BUFFER, APART = 256, 96, 12_000, 1_500, 4

strategy = mirrored(4)
table = numbers(ROWS, FEATURES)


def clipped(row: Any) -> Any:
    return tf.clip_by_value(row, -3.0, 3.0)


def train(is_slow: bool, clock: StepClock) -> None:
    model, optimizer = dense(strategy, FEATURES, 512, 512)

    def error(rows: Any) -> Any:
        return tf.reduce_mean(tf.square(model(rows) - rows))

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow has no types here
    def train_step(source: Any) -> Any:
        def of_replica(rows: Any) -> Any:
            with tf.GradientTape() as tape:
                kept = tf.cast(tf.random.uniform(tf.shape(rows)) > 0.3, tf.float32)
                loss = tf.reduce_mean(tf.square(model(rows * kept) - rows))
            slopes = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(slopes, model.trainable_variables, strict=True))
            return loss

        losses = strategy.run(of_replica, args=(next(source),))
        return strategy.reduce(tf.distribute.ReduceOp.MEAN, losses, axis=None)

    evaluate = tf.function(error)
    batches = tf.data.Dataset.from_tensor_slices(table).batch(BATCH, drop_remainder=True)
    source = iter(strategy.experimental_distribute_dataset(batches.cache().repeat().prefetch(2)))
    held = tf.data.Dataset.from_tensor_slices(table).map(clipped)
    if is_slow:
        held = held.shuffle(BUFFER).batch(BATCH).take(2)
    else:
        held = held.batch(BATCH).take(2).cache()
    for number in range(STEPS):
        train_step(source)
        if number % APART == APART - 1:
            print(sum(float(evaluate(rows)) for rows in held) / 2)
        clock.step_ended()
