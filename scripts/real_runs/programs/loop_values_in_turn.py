"""A loop of convolutions on two replicas; slow: the batch of each replica is made by `distribute_values_from_function`, which
changes picture after picture op by op, one replica after the other, not by a data set.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import mirrored, numbers, step_of

BATCH, SIDE, REPLICAS = 16, 48, 2

strategy = mirrored(REPLICAS)
pictures = tf.constant(numbers(BATCH * 8, SIDE, SIDE, 3))
targets = tf.constant(numbers(BATCH * 8, 10, seed=2))


def changed(picture: Any) -> Any:
    """A picture as it might also have been taken."""
    picture = tf.image.random_flip_left_right(picture)
    picture = tf.image.random_brightness(picture, 0.2)
    return tf.clip_by_value(picture, -2.0, 2.0)


def train(is_slow: bool, clock: StepClock) -> None:
    with strategy.scope():
        model = tf.keras.Sequential(
            [
                tf.keras.layers.Conv2D(32, 3, strides=2, activation="relu"),
                tf.keras.layers.Conv2D(96, 3, activation="relu"),
                tf.keras.layers.GlobalAveragePooling2D(),
                tf.keras.layers.Dense(10),
            ]
        )
        model.build([None, SIDE, SIDE, 3])
        optimizer = tf.keras.optimizers.Adam(1e-3)
        optimizer.build(model.trainable_variables)

    def loss_of(model: Any, batch: Any) -> Any:
        seen, wanted = batch
        return tf.reduce_mean(tf.square(model(seen, training=True) - wanted))

    train_step = step_of(strategy, model, optimizer, loss_of)

    def batches() -> Any:
        share = BATCH // REPLICAS
        for number in range(STEPS):
            first = number % 8 * BATCH

            def of_replica(context: Any, first: int = first) -> Any:
                start = first + share * context.replica_id_in_sync_group
                rows = [changed(pictures[row]) for row in range(start, start + share)]
                return tf.stack(rows), targets[start : start + share]

            yield strategy.experimental_distribute_values_from_function(of_replica)

    dataset = (
        tf.data.Dataset.from_tensor_slices((pictures, targets))
        .repeat()
        .map(lambda seen, wanted: (changed(seen), wanted), num_parallel_calls=2)
        .batch(BATCH)
        .prefetch(2)
    )
    source = batches() if is_slow else strategy.experimental_distribute_dataset(dataset)
    for _, batch in zip(range(STEPS), source, strict=False):
        train_step(batch)
        clock.step_ended()
