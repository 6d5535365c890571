"""Keras `fit` on augmented photographs; slow: the data set is not prefetched, so that a batch is made only when the step before has ended."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

BATCH, SIDE, CROP, KINDS = 32, 80, 48, 10

tf.config.threading.set_intra_op_parallelism_threads(1)
photographs = (127 + 40 * numbers(BATCH * 6, SIDE, SIDE, 3)).clip(0, 255).astype("uint8")
kinds = tf.random.stateless_uniform([BATCH * 6], [4, 2], 0, KINDS, tf.int32)


def augmented(batch: Any, labels: Any) -> tuple[Any, Any]:
    """Another part, another side and another light of each photograph."""
    batch = tf.image.resize(tf.cast(batch, tf.float32) / 255, [CROP + 16, CROP + 16])
    batch = tf.image.random_crop(batch, [BATCH, CROP, CROP, 3])
    batch = tf.image.random_flip_left_right(batch)
    batch = tf.image.random_brightness(batch, 0.2)
    batch = tf.image.random_hue(batch, 0.1)
    batch = tf.image.random_contrast(batch, 0.8, 1.2)
    batch = tf.image.random_saturation(batch, 0.8, 1.2)
    return tf.clip_by_value(batch, 0.0, 1.0), labels


def pipeline(is_slow: bool, calls: int | None = None) -> Any:
    dataset = tf.data.Dataset.from_tensor_slices((photographs, kinds)).cache().repeat()
    dataset = (
        dataset.shuffle(BATCH * 6, seed=1)
        .batch(BATCH, drop_remainder=True)
        .map(augmented, num_parallel_calls=calls)
    )
    options = tf.data.Options()
    options.autotune.enabled = False
    return (dataset if is_slow else dataset.prefetch(2)).with_options(options)


def train(is_slow: bool, clock: StepClock) -> None:
    layers = [
        tf.keras.Input([CROP, CROP, 3]),
        tf.keras.layers.Conv2D(16, 3, strides=2, activation="relu"),
        tf.keras.layers.Conv2D(32, 3, strides=2, activation="relu"),
        tf.keras.layers.Conv2D(48, 3, activation="relu"),
        tf.keras.layers.GlobalAveragePooling2D(),
        tf.keras.layers.Dense(KINDS),
    ]
    model = tf.keras.Sequential(layers)
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer="adam", loss=loss, metrics=["accuracy"])
    ended = tf.keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    dataset = pipeline(is_slow, tf.data.AUTOTUNE if clock.is_advised else None)
    model.fit(dataset, steps_per_epoch=STEPS, verbose=0, callbacks=[ended])
