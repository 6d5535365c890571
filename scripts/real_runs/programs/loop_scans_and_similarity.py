"""Two replicas; slow: whole scans are rotated for a part of them, and each step rates results by a second model."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from scipy import ndimage  # type: ignore[import-untyped]  # SciPy has no types here

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import mirrored

SLICES, BATCH, SIDE, PART, MARGIN, LOG_EVERY = 24, 8, 144, 64, 12, 16

strategy = mirrored(2)
rng = np.random.default_rng(31)
slices = rng.random([SLICES, SIDE, SIDE]).astype(np.float32)


def turned_part(scan: Any, angle: float, top: int, left: int, as_whole: bool) -> Any:
    if as_whole:
        turned = ndimage.rotate(scan, angle, reshape=False, order=3, mode="reflect")
        return turned[top : top + PART, left : left + PART]
    near = scan[top - MARGIN : top + PART + MARGIN, left - MARGIN : left + PART + MARGIN]
    turned = ndimage.rotate(near, angle, reshape=False, order=3, mode="reflect")
    return turned[MARGIN:-MARGIN, MARGIN:-MARGIN]


def parts_of(number: int, as_whole: bool) -> Any:
    parts = []
    for scan in slices[number * BATCH % SLICES :][:BATCH]:
        top, left = rng.integers(MARGIN, SIDE - PART - MARGIN, 2)
        parts.append(turned_part(scan, rng.uniform(-15, 15), top, left, as_whole))
    return np.stack(parts)[..., None]


def train(is_slow: bool, clock: StepClock) -> None:
    as_whole, has_rating = is_slow, is_slow
    layers = tf.keras.layers
    with strategy.scope():
        model = tf.keras.Sequential(
            [
                tf.keras.Input([PART, PART, 1]),
                layers.Conv2D(16, 3, padding="same", activation="relu"),
                layers.Conv2D(16, 3, padding="same", activation="relu"),
                layers.Conv2D(1, 3, padding="same"),
            ]
        )
        judge = tf.keras.Sequential(
            [
                tf.keras.Input([PART, PART, 1]),
                layers.Conv2D(48, 5, padding="same", activation="relu"),
                layers.Conv2D(48, 3, strides=2, padding="same", activation="relu"),
            ]
        )
        judge.trainable = False
        optimizer = tf.keras.optimizers.SGD(1e-2)
        optimizer.build(model.trainable_variables)

    def likeness(guessed: Any, sharp: Any) -> Any:
        return tf.reduce_mean(tf.abs(judge(guessed) - judge(sharp)))

    def replica_step(sharp: Any, wants_rating: Any) -> Any:
        dull = tf.nn.avg_pool2d(sharp, 3, 1, "SAME")
        with tf.GradientTape() as tape:
            guessed = model(dull, training=True)
            loss = tf.reduce_mean(tf.abs(guessed - sharp))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        if has_rating:
            rating = likeness(guessed, sharp)
        else:
            rating = tf.cond(
                wants_rating,
                lambda: likeness(guessed, sharp),
                lambda: tf.constant(0.0),
            )
        return loss, rating

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow has no types here
    def train_step(sharp: Any, wants_rating: Any) -> Any:
        losses, ratings = strategy.run(replica_step, args=(sharp, wants_rating))
        mean = tf.distribute.ReduceOp.MEAN
        return strategy.reduce(mean, losses, axis=None), strategy.reduce(mean, ratings, axis=None)

    for number in range(STEPS):
        parts = parts_of(number, as_whole)
        half = BATCH // 2

        def rows_of(context: Any, parts: Any = parts, half: int = half) -> Any:
            replica = context.replica_id_in_sync_group
            return tf.constant(parts[replica * half : (replica + 1) * half])

        sharp = strategy.experimental_distribute_values_from_function(rows_of)
        is_logged = number % LOG_EVERY == LOG_EVERY - 1
        loss, rating = train_step(sharp, tf.constant(is_logged))
        float(loss)
        if is_logged:
            float(rating)
        clock.step_ended()
