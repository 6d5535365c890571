"""Segmentation of images on two replicas; slow: the data set is not distributed, so that each replica trains on the whole batch."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import mirrored, numbers

BATCH, SIDE, CLASSES, FILTERS = 24, 64, 6, (16, 24, 32)

strategy = mirrored(2)
images = numbers(BATCH * 4, SIDE, SIDE, 3)
masks = tf.random.stateless_uniform([BATCH * 4, SIDE, SIDE], [7, 3], 0, CLASSES, tf.int32)


def convolved(filters: int, stride: int = 1) -> Any:
    return tf.keras.layers.Conv2D(
        filters, 3, stride, padding="same", activation="relu", use_bias=False
    )


class Segmenter(tf.keras.Model):  # type: ignore[misc]  # TensorFlow has no types here
    """A small U-Net: layers that halve the image, and as many that double it and read what was halved."""

    def __init__(self) -> None:
        super().__init__()
        self.down = [convolved(filters, 2) for filters in FILTERS]
        self.up = [
            tf.keras.layers.Conv2DTranspose(filters, 3, 2, padding="same", activation="relu")
            for filters in (*FILTERS[-2::-1], FILTERS[0])
        ]
        self.joined = [convolved(filters) for filters in (*FILTERS[-2::-1], FILTERS[0])]
        self.classes = tf.keras.layers.Conv2D(CLASSES, 1)

    def call(self, batch: Any) -> Any:
        halved = [batch]
        for layer in self.down:
            halved.append(layer(halved[-1]))
        states = halved.pop()
        for layer, joined in zip(self.up, self.joined, strict=True):
            states = joined(tf.concat([layer(states), halved.pop()], axis=-1))
        return self.classes(states)


def train(is_slow: bool, clock: StepClock) -> None:
    dataset = tf.data.Dataset.from_tensor_slices((images, masks)).batch(BATCH).cache()
    dataset = dataset.repeat().prefetch(2)
    with strategy.scope():
        model = Segmenter()
        model(images[:2])
        optimizer = tf.keras.optimizers.Adam(1e-3)
        optimizer.build(model.trainable_variables)

    def replica_step(batch: Any, truth: Any) -> Any:
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(truth, model(batch))
            loss = tf.reduce_sum(losses) / (BATCH * SIDE * SIDE)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow has no types here
    def train_step(batch: Any) -> Any:
        losses = strategy.run(replica_step, args=batch)
        return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)

    source = iter(dataset if is_slow else strategy.experimental_distribute_dataset(dataset))
    for _ in range(STEPS):
        train_step(next(source))
        clock.step_ended()
