"""A loop that learns the settings of a camera for each photo; slow: the gradient of what develops photos is made of differences, two
runs of it for each setting; healthy: it is that of its ops.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

SIDE, SETTINGS, BATCH = 48, 7, 16

raw = tf.abs(numbers(BATCH, SIDE, SIDE, 3))


def develop(photos: Any, settings: Any) -> Any:
    """Photos with exposure, gains, gamma, saturation and contrast."""
    exposure, gains, gamma, saturation, contrast = tf.split(settings, [1, 3, 1, 1, 1], axis=1)
    light = photos * tf.exp(exposure)[:, :, None, None] * tf.exp(gains)[:, None, None, :]
    light = tf.pow(tf.maximum(light, 1e-4), tf.exp(gamma)[:, :, None, None])
    grey = tf.reduce_mean(light, axis=3, keepdims=True)
    light = grey + (light - grey) * tf.exp(saturation)[:, :, None, None]
    return tf.sigmoid((light - 0.5) * 4 * tf.exp(contrast)[:, :, None, None])


@tf.custom_gradient  # type: ignore[untyped-decorator]  # TensorFlow has no types here
def develop_by_differences(photos: Any, settings: Any) -> Any:
    """The same, with its gradient for the settings."""

    def gradient(slope: Any) -> Any:
        slopes = []
        for index in range(SETTINGS):
            shift = 1e-2 * tf.one_hot(index, SETTINGS)[None]
            change = develop(photos, settings + shift) - develop(photos, settings - shift)
            slopes.append(tf.reduce_sum(slope * change, axis=[1, 2, 3]) / 2e-2)
        return None, tf.stack(slopes, axis=1)

    return develop(photos, settings), gradient


def train(is_slow: bool, clock: StepClock) -> None:
    layers = [tf.keras.layers.Conv2D(width, 3, strides=2, activation="relu") for width in (24, 48)]
    pooled = tf.keras.layers.GlobalAveragePooling2D()
    network = tf.keras.Sequential([*layers, pooled, tf.keras.layers.Dense(SETTINGS)])
    network.build([None, SIDE, SIDE, 3])
    optimizer = tf.keras.optimizers.Adam(1e-3)
    optimizer.build(network.trainable_variables)
    developed = develop_by_differences if is_slow else develop
    wanted = develop(raw, tf.zeros([BATCH, SETTINGS]) + 0.2)

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow has no types here
    def train_step(photos: Any, wanted: Any) -> Any:
        with tf.GradientTape() as tape:
            made = developed(photos, network(photos, training=True))
            loss = tf.reduce_mean(tf.square(made - wanted))
        gradients = tape.gradient(loss, network.trainable_variables)
        optimizer.apply_gradients(zip(gradients, network.trainable_variables, strict=True))
        return loss

    for _ in range(STEPS):
        train_step(raw, wanted)
        clock.step_ended()
