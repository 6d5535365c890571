"""Two replicas learn vectors of pictures from two views in a `train_step` of their own; slow: `tf.vectorized_map` makes the views,
but its ops that crop and turn pictures have no vectorized form, so that loops run picture by picture, not one call for the batch.
"""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import mirrored, numbers

BATCH, SIDE = 256, 16

strategy = mirrored(2)
pictures = numbers(BATCH * 4, SIDE, SIDE, 3)


def turned(batch: Any, angles: Any) -> Any:
    """Pictures turned around their centers."""
    cosine, sine = tf.cos(angles), tf.sin(angles)
    center = (SIDE - 1) / 2
    across = center - cosine * center + sine * center
    down = center - sine * center - cosine * center
    nothing = tf.zeros_like(angles)
    transforms = tf.stack([cosine, -sine, across, sine, cosine, down, nothing, nothing], axis=-1)
    return tf.raw_ops.ImageProjectiveTransformV3(
        images=batch,
        transforms=transforms,
        output_shape=[SIDE, SIDE],
        fill_value=0.0,
        interpolation="BILINEAR",
        fill_mode="REFLECT",
    )


def view_of_one(inputs: Any) -> Any:
    """A picture as it might also have been taken."""
    picture, box, angle, light, contrast = inputs
    picture = tf.image.crop_and_resize(picture[None], box[None], [0], [SIDE, SIDE])[0]
    picture = turned(picture[None], angle[None])[0]
    mean = tf.reduce_mean(picture, axis=(0, 1), keepdims=True)
    picture = (picture - mean) * contrast + mean + light
    return tf.clip_by_value(picture, -3.0, 3.0)


def view_of_all(inputs: Any) -> Any:
    """The same of a batch."""
    batch, boxes, angles, light, contrast = inputs
    count = tf.shape(batch)[0]
    batch = tf.image.crop_and_resize(batch, boxes, tf.range(count), [SIDE, SIDE])
    batch = turned(batch, angles)
    mean = tf.reduce_mean(batch, axis=(1, 2), keepdims=True)
    batch = (batch - mean) * contrast[:, None, None, None] + mean + light[:, None, None, None]
    return tf.clip_by_value(batch, -3.0, 3.0)


class Contrastive(keras.Model):  # type: ignore[misc]  # Keras has no types here
    """Draws two views of one picture together, and those of others apart."""

    def __init__(self, one_by_one: bool) -> None:
        super().__init__()
        self.one_by_one = one_by_one
        self.encoder = keras.Sequential(
            [
                keras.layers.Conv2D(16, 3, strides=2, activation="relu"),
                keras.layers.Conv2D(32, 3, strides=2, activation="relu"),
                keras.layers.GlobalAveragePooling2D(),
                keras.layers.Dense(64),
            ]
        )
        self.encoder.build((None, SIDE, SIDE, 3))
        self.built = True

    def view(self, batch: Any) -> Any:
        count = [tf.shape(batch)[0]]
        first = tf.random.uniform([tf.shape(batch)[0], 2], 0.0, 0.2)
        inputs = (
            batch,
            tf.concat([first, first + 0.8], axis=1),
            tf.random.uniform(count, -0.5, 0.5),
            tf.random.uniform(count, -0.2, 0.2),
            tf.random.uniform(count, 0.7, 1.3),
        )
        if self.one_by_one:
            return tf.vectorized_map(view_of_one, inputs)
        return view_of_all(inputs)

    def train_step(self, batch: Any) -> Any:
        first, second = self.view(batch), self.view(batch)
        with tf.GradientTape() as tape:
            one = tf.math.l2_normalize(self.encoder(first, training=True), axis=1)
            other = tf.math.l2_normalize(self.encoder(second, training=True), axis=1)
            fits = tf.matmul(one, other, transpose_b=True) / 0.1
            loss = tf.reduce_mean(
                tf.nn.sparse_softmax_cross_entropy_with_logits(tf.range(tf.shape(fits)[0]), fits)
            )
        weights = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, weights), weights)
        return {"loss": loss}


def train(is_slow: bool, clock: StepClock) -> None:
    dataset = tf.data.Dataset.from_tensor_slices(pictures).batch(BATCH).cache().repeat().prefetch(2)
    with strategy.scope():
        model = Contrastive(is_slow)
        model.compile(optimizer=keras.optimizers.SGD(1e-2, momentum=0.9))
    ended = keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    model.fit(dataset, steps_per_epoch=STEPS, verbose=0, callbacks=[ended])
