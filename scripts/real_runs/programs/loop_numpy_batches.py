"""A loop on one device without tf.data; slow: NumPy augments each batch between two steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, SIZE = 24, 80

tf.config.threading.set_intra_op_parallelism_threads(1)
rng = np.random.default_rng(1)
images = rng.standard_normal([BATCH, SIZE, SIZE, 3]).astype(np.float32)


def augmented(batch: Any) -> Any:
    noise = rng.standard_normal(batch.shape)
    turned = np.stack([np.rot90(image, int(rng.integers(4))) for image in batch])
    smooth = np.real(np.fft.ifft2(np.fft.fft2(turned, axes=(1, 2)) * 0.9, axes=(1, 2)))
    return np.clip(smooth + 0.1 * noise, -3, 3).astype(np.float32)


def train(is_slow: bool, clock: StepClock) -> None:
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Conv2D(24, 3, activation="relu"),
            tf.keras.layers.Conv2D(24, 3, strides=2, activation="relu"),
            tf.keras.layers.GlobalAveragePooling2D(),
            tf.keras.layers.Dense(10),
        ]
    )
    model.build([BATCH, SIZE, SIZE, 3])
    optimizer = tf.keras.optimizers.Adam()

    def train_step(batch: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(batch, training=True)))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    compiled_step = tf.function(train_step)
    prepared = tf.constant(images)
    for _ in range(STEPS):
        compiled_step(tf.constant(augmented(images)) if is_slow else prepared)
        clock.step_ended()
