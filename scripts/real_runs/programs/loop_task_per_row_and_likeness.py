"""A network takes noise off pictures on one device; slow twice: a pool of threads gets a task for each row of a batch, whose Python
is short and holds the lock of the interpreter, not one call of NumPy, and each step computes SSIM for the log.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

BATCH, SIDE, CHANNELS, SCORED = 192, 32, 16, 80

pictures = np.clip(numbers(BATCH * 4, SIDE, SIDE, 1) * 0.2 + 0.5, 0, 1)
noise = numbers(BATCH * 16, SIDE, SIDE, 1, seed=2) * 0.1
random = np.random.default_rng(3)
pool = ThreadPoolExecutor(4)


def spoiled(picture: Any, grain: Any, level: float) -> Any:
    """A picture with noise and another light."""
    mixed = picture + grain * level
    mixed = mixed - mixed.mean() + 0.5
    return np.clip(mixed, 0.0, 1.0)


def spoiled_batch(clean: Any, grains: Any, levels: Any) -> Any:
    """The same of a batch."""
    mixed = grains * levels[:, None, None, None]
    mixed += clean
    mixed += 0.5 - mixed.mean((1, 2, 3), keepdims=True)
    return np.clip(mixed, 0.0, 1.0, out=mixed)


def train(is_slow: bool, clock: StepClock) -> None:
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Conv2D(CHANNELS, 3, strides=2, padding="same", activation="relu"),
            tf.keras.layers.Conv2D(CHANNELS, 3, padding="same", activation="relu"),
            tf.keras.layers.Conv2DTranspose(1, 2, strides=2),
        ]
    )
    model.build([None, SIDE, SIDE, 1])
    optimizer = tf.keras.optimizers.Adam(1e-3)
    optimizer.build(model.trainable_variables)

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow has no types here
    def train_step(seen: Any, clean: Any) -> Any:
        with tf.GradientTape() as tape:
            restored = model(seen, training=True)
            loss = tf.reduce_mean(tf.square(restored - clean))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        if is_slow:
            likeness = tf.image.ssim(restored[:SCORED], clean[:SCORED], 1.0)
            return loss, tf.reduce_mean(likeness)
        return loss, tf.constant(0.0)

    log = []
    for number in range(STEPS):
        first = number % 4 * BATCH
        clean = pictures[first : first + BATCH]
        grains = noise[(start := int(random.integers(0, BATCH * 15))) : start + BATCH]
        levels = random.uniform(0.5, 1.5, BATCH).astype(np.float32)
        if is_slow:
            futures = [
                pool.submit(spoiled, *row) for row in zip(clean, grains, levels, strict=True)
            ]
            seen = np.stack([future.result() for future in futures])
        else:
            seen = spoiled_batch(clean, grains, levels)
        log.append(train_step(tf.constant(seen), tf.constant(clean)))
        clock.step_ended()
    log[:] = [(float(loss), float(likeness)) for loss, likeness in log]
