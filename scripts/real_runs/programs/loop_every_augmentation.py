"""Photographs on four replicas, changed by one augmentation of nine; slow: the data set makes all nine of each batch, and takes one."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import mirrored, numbers, step_of

BATCH, SIDE, CHANNELS, KINDS = 48, 64, 20, 12
"""`BATCH`: of all replicas."""

strategy = mirrored(4)
photographs = tf.sigmoid(numbers(BATCH * 6, SIDE, SIDE, 3))
kinds = tf.random.stateless_uniform([BATCH * 6], [4, 1], 0, KINDS, tf.int32)


def smaller(images: Any) -> Any:
    """Images half as large in the middle of a frame of zeros."""
    edge = SIDE // 4
    rows = tf.image.resize(images, [SIDE - 2 * edge, SIDE - 2 * edge])
    return tf.image.pad_to_bounding_box(rows, edge, edge, SIDE, SIDE)


def larger(images: Any) -> Any:
    rows = tf.image.resize(images, [SIDE * 3 // 2, SIDE * 3 // 2])
    return tf.image.random_crop(rows, [BATCH, SIDE, SIDE, 3])


AUGMENTATIONS = (
    tf.image.flip_left_right,
    tf.image.rot90,
    smaller,
    larger,
    lambda images: tf.image.adjust_hue(images, 0.1),
    lambda images: tf.image.adjust_saturation(images, 1.4),
    lambda images: tf.image.adjust_contrast(images, 0.7),
    lambda images: tf.where(images < 0.6, images, 1.0 - images),
    lambda images: tf.floor(images * 16.0) / 16.0,
)


def train(is_slow: bool, clock: StepClock) -> None:
    def augmented(images: Any, labels: Any) -> Any:
        number = tf.random.uniform([], 0, len(AUGMENTATIONS), tf.int32)
        if is_slow:
            images = tf.stack([change(images) for change in AUGMENTATIONS])[number]
        else:
            images = tf.switch_case(number, [lambda c=c: c(images) for c in AUGMENTATIONS])
        return tf.ensure_shape(images, [BATCH, SIDE, SIDE, 3]), labels

    with strategy.scope():
        filters = [
            tf.keras.layers.Conv2D(CHANNELS * count, 3, 2, activation="relu") for count in (1, 2)
        ]
        layers = [*filters, tf.keras.layers.Flatten(), tf.keras.layers.Dense(KINDS)]
        model = tf.keras.Sequential(layers)
        model.build([None, SIDE, SIDE, 3])
        optimizer = tf.keras.optimizers.SGD(0.01, momentum=0.9)
        optimizer.build(model.trainable_variables)

    def loss_of(model: Any, batch: Any) -> Any:
        images, labels = batch
        scores = model(images, training=True)
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, scores))

    dataset = tf.data.Dataset.from_tensor_slices((photographs, kinds))
    dataset = dataset.batch(BATCH, drop_remainder=True).cache().repeat().map(augmented).prefetch(2)
    source = iter(strategy.experimental_distribute_dataset(dataset))
    train_step = step_of(strategy, model, optimizer, loss_of)
    for _ in range(STEPS):
        float(train_step(next(source)))
        clock.step_ended()
