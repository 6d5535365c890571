"""A loop on one device learns to clean pictures of a sensor; slow twice: (a) its loss blurs by a square of 25 x 25 weights, not along
rows and then along columns, (b) `np.vectorize` turns counts into brightness value by value, not an expression over the array.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, SIDE, REACH = 24, 32, 12
WHICH = os.environ.get("WHICH", "both")

random = np.random.default_rng(4)
counts = random.integers(0, 4096, (BATCH * 6, SIDE, SIDE, 1))
line = np.exp(-(np.arange(-REACH, REACH + 1) ** 2) / 40)
line = (line / line.sum()).astype(np.float32)
along_rows = tf.constant(line[None, :, None, None])
along_columns = tf.constant(line[:, None, None, None])
square = tf.constant((line[:, None] * line)[:, :, None, None])


def brightness(count: int) -> float:
    """What the eye sees of a count of the sensor."""
    share = count / 4095
    return 12.92 * share if share <= 0.0031308 else 1.055 * share ** (1 / 2.4) - 0.055


def brightness_of_all(batch: Any) -> Any:
    """What the eye sees of many counts."""
    shares = (batch / 4095).astype(np.float32)
    return np.where(shares <= 0.0031308, 12.92 * shares, 1.055 * shares ** (1 / 2.4) - 0.055)


def train(is_slow: bool, clock: StepClock) -> None:
    is_square = is_slow and WHICH in ("a", "both")
    curve = np.vectorize(brightness) if is_slow and WHICH in ("b", "both") else brightness_of_all
    model = tf.keras.Sequential(
        [
            tf.keras.Input([SIDE, SIDE, 1]),
            tf.keras.layers.Conv2D(24, 3, padding="same", activation="relu"),
            tf.keras.layers.Conv2D(24, 3, padding="same", activation="relu"),
            tf.keras.layers.Conv2D(1, 3, padding="same"),
        ]
    )
    optimizer = tf.keras.optimizers.Adam(1e-3)
    optimizer.build(model.trainable_variables)

    def blurred(pictures: Any) -> Any:
        if is_square:
            return tf.nn.depthwise_conv2d(pictures, square, [1, 1, 1, 1], "SAME")
        pictures = tf.nn.depthwise_conv2d(pictures, along_rows, [1, 1, 1, 1], "SAME")
        return tf.nn.depthwise_conv2d(pictures, along_columns, [1, 1, 1, 1], "SAME")

    def step(clean: Any) -> Any:
        with tf.GradientTape() as tape:
            cleaned = model(clean + tf.random.normal(tf.shape(clean), stddev=0.1), training=True)
            sharp = tf.reduce_mean(tf.square(cleaned - clean))
            soft = tf.reduce_mean(tf.square(blurred(cleaned) - blurred(clean)))
            loss = sharp + soft
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    train_step = tf.function(step)
    for number in range(STEPS):
        first = number % 6 * BATCH
        seen = curve(counts[first : first + BATCH])
        train_step(tf.constant(seen, tf.float32))
        clock.step_ended()
