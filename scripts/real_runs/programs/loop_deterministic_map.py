"""A loop over noisy pictures on one device; slow: `enable_op_determinism` of a test was left on, which makes a map with random ops
go through one picture after the other.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.framework import config

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

BATCH, SIDE, COPIES = 24, 64, 3

tf.config.threading.set_intra_op_parallelism_threads(1)
pictures = numbers(BATCH * 4, SIDE, SIDE, 3)
targets = numbers(BATCH * 4, 10, seed=2)


def noisy(picture: Any, target: Any) -> Any:
    """A picture as it might also have been taken."""
    picture = tf.image.random_flip_left_right(picture, seed=1)
    picture = tf.image.random_contrast(picture, 0.7, 1.3, seed=2)
    for copy in range(COPIES):
        picture += 0.1 * tf.random.normal(tf.shape(picture), seed=3 + copy)
    return tf.clip_by_value(picture, -3.0, 3.0), target


def train(is_slow: bool, clock: StepClock) -> None:
    tf.keras.utils.set_random_seed(1)
    if is_slow:
        tf.config.experimental.enable_op_determinism()
    else:
        config.disable_op_determinism()
    dataset = (
        tf.data.Dataset.from_tensor_slices((pictures, targets))
        .repeat()
        .map(noisy, num_parallel_calls=2)
        .batch(BATCH)
        .prefetch(2)
    )
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Conv2D(16, 5, strides=4, activation="relu"),
            tf.keras.layers.Conv2D(32, 3, strides=2, activation="relu"),
            tf.keras.layers.GlobalAveragePooling2D(),
            tf.keras.layers.Dense(10),
        ]
    )
    model.build([None, SIDE, SIDE, 3])
    optimizer = tf.keras.optimizers.Adam(1e-3)
    optimizer.build(model.trainable_variables)

    def train_step(seen: Any, wanted: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(seen, training=True) - wanted))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    compiled_train_step = tf.function(train_step)
    for number, (seen, wanted) in zip(range(STEPS), dataset, strict=False):
        loss = compiled_train_step(seen, wanted)
        if number % 16 == 0:
            print(float(loss))
        clock.step_ended()
