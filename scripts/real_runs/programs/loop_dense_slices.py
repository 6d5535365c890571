"""A recommender in a loop on two replicas; slow: the gradient of the table of items is made dense by `tf.convert_to_tensor` to be
clipped, so that the whole table is summed over the replicas and updated, not the rows of the batch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import mirrored, numbers

BATCH, ITEMS, SIZE, SEEN, UNITS = 256, 64_000, 48, 8, 512

strategy = mirrored(2)
random = np.random.default_rng(6)
seen = np.concatenate(
    [random.permutation(ITEMS)[: BATCH * SEEN].reshape(BATCH, SEEN) for _ in range(4)]
)
ratings = numbers(BATCH * 4, 1)


def train(is_slow: bool, clock: StepClock) -> None:
    with strategy.scope():
        model = tf.keras.Sequential(
            [
                tf.keras.layers.Embedding(ITEMS, SIZE),
                tf.keras.layers.Flatten(),
                tf.keras.layers.Dense(UNITS, activation="relu"),
                tf.keras.layers.Dense(UNITS, activation="relu"),
                tf.keras.layers.Dense(UNITS, activation="relu"),
                tf.keras.layers.Dense(1),
            ]
        )
        model.build([None, SEEN])
        optimizer = tf.keras.optimizers.SGD(1e-2)
        optimizer.build(model.trainable_variables)

    def replica_step(items: Any, targets: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(items, training=True) - targets))
        gradients = tape.gradient(loss, model.trainable_variables)
        if is_slow:
            gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
        gradients = [tf.clip_by_value(gradient, -1, 1) for gradient in gradients]
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    @tf.function  # type: ignore[untyped-decorator]
    def train_step(batch: Any) -> Any:
        losses = strategy.run(replica_step, args=batch)
        return strategy.reduce(tf.distribute.ReduceOp.MEAN, losses, axis=None)

    dataset = (
        tf.data.Dataset.from_tensor_slices((seen, ratings))
        .batch(BATCH)
        .cache()
        .repeat()
        .prefetch(2)
    )
    for _, batch in zip(
        range(STEPS), strategy.experimental_distribute_dataset(dataset), strict=False
    ):
        train_step(batch)
        clock.step_ended()
