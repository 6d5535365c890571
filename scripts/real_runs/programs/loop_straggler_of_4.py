"""A loop over a convolutional network on four devices; slow: one replica gets images of three times the width and height."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import mirrored, step_of

BATCH, SIZE, SLOW_REPLICA = 8, 32, 2

strategy = mirrored(4)


def train(is_slow: bool, clock: StepClock) -> None:
    def images_of(context: Any) -> Any:
        is_large = is_slow and context.replica_id_in_sync_group == SLOW_REPLICA
        size = SIZE * 3 if is_large else SIZE
        return tf.random.stateless_normal([BATCH, size, size, 3], seed=[1, 2])

    with strategy.scope():
        model = tf.keras.Sequential(
            [
                tf.keras.layers.Conv2D(24, 3, activation="relu"),
                tf.keras.layers.Conv2D(24, 3, activation="relu"),
                tf.keras.layers.GlobalAveragePooling2D(),
                tf.keras.layers.Dense(10),
            ]
        )
        model.build([None, None, None, 3])
        optimizer = tf.keras.optimizers.Adam()
        optimizer.build(model.trainable_variables)

    compiled_step = step_of(
        strategy,
        model,
        optimizer,
        lambda model, images: tf.reduce_mean(tf.square(model(images, training=True))),
    )
    images = strategy.experimental_distribute_values_from_function(images_of)
    for _ in range(STEPS):
        compiled_step(images)
        clock.step_ended()
