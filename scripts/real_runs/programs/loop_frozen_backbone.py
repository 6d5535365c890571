"""A classifier of videos on features of a frozen network; slow: the frozen network reads the same frames again in each step."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

BATCH, FRAMES, SIDE, CLASSES, VIDEOS = 8, 16, 36, 20, 32

tf.config.threading.set_intra_op_parallelism_threads(1)
videos = numbers(VIDEOS, FRAMES, SIDE, SIDE, 3)
labels = tf.random.stateless_uniform([VIDEOS], [8, 1], 0, CLASSES, tf.int32)


class Backbone(tf.keras.Model):  # type: ignore[misc]  # TensorFlow has no types here
    """A small residual network, as if it had been trained before, that makes a vector of each frame."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = tf.keras.layers.Conv2D(16, 3, 2, padding="same", activation="relu")
        self.blocks = [
            tf.keras.layers.Conv2D(16, 3, padding="same", activation="relu") for _ in range(3)
        ]
        self.wide = tf.keras.layers.Conv2D(96, 3, 2, padding="same", activation="relu")
        self.norm = tf.keras.layers.BatchNormalization()

    def call(self, frames: Any, training: bool = False) -> Any:
        states = self.stem(tf.reshape(frames, [-1, SIDE, SIDE, 3]))
        for block in self.blocks:
            states += block(states)
        states = self.norm(self.wide(states), training=training)
        return tf.reshape(tf.reduce_mean(states, axis=[1, 2]), [-1, FRAMES, 96])


def train(is_slow: bool, clock: StepClock) -> None:
    backbone = Backbone()
    backbone(videos[:1])
    backbone.trainable = False
    head = tf.keras.Sequential(
        [
            tf.keras.layers.GRU(192, return_sequences=True),
            tf.keras.layers.GRU(96),
            tf.keras.layers.Dropout(0.4),
            tf.keras.layers.Dense(CLASSES),
        ]
    )
    head.build([None, FRAMES, 96])
    optimizer = tf.keras.optimizers.Adam(1e-3)
    optimizer.build(head.trainable_variables)

    dataset = tf.data.Dataset.from_tensor_slices((videos, labels)).batch(BATCH)
    if not is_slow:
        dataset = dataset.map(lambda frames, truth: (backbone(frames), truth))
    dataset = dataset.cache().repeat().prefetch(2)

    @tf.function  # type: ignore[untyped-decorator]
    def train_step(batch: Any, truth: Any) -> Any:
        with tf.GradientTape() as tape:
            features = backbone(batch, training=False) if is_slow else batch
            scores = head(features, training=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(truth, scores)
            loss = tf.reduce_mean(losses)
        gradients = tape.gradient(loss, head.trainable_variables)
        optimizer.apply_gradients(zip(gradients, head.trainable_variables, strict=True))
        return loss

    source = iter(dataset)
    for _ in range(STEPS):
        train_step(*next(source))
        clock.step_ended()
