"""A loop on two replicas over sets of points, whose features are scaled by gates that come from the set; slow: the gates of a set are made
a diagonal matrix, which the features are multiplied with, as in the paper, not multiplied one by one.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import mirrored, numbers, step_of

BATCH, POINTS, WIDTH, BLOCKS, CLASSES = 32, 128, 128, 3, 16

strategy = mirrored(2)
points = numbers(BATCH * 6, POINTS, 3)
labels = abs(numbers(BATCH * 6, seed=3) * 1e4).astype("int32") % CLASSES


class GatedBlock(tf.keras.layers.Layer):  # type: ignore[misc]  # Keras has no types here
    """Adds to each point what a dense layer makes of it, scaled by gates of the whole set."""

    def __init__(self, is_slow: bool) -> None:
        super().__init__()
        self.is_slow = is_slow
        self.features = tf.keras.layers.Dense(WIDTH, activation="relu")
        self.gates = tf.keras.layers.Dense(WIDTH, activation="sigmoid")

    def build(self, shape: Any) -> None:
        self.features.build(shape)
        self.gates.build((shape[0], shape[2]))

    def call(self, rows: Any) -> Any:
        gates = self.gates(tf.reduce_mean(rows, axis=1))
        features = self.features(rows)
        if self.is_slow:
            return rows + tf.matmul(features, tf.linalg.diag(gates))
        return rows + features * gates[:, tf.newaxis]


def train(is_slow: bool, clock: StepClock) -> None:
    with strategy.scope():
        model = tf.keras.Sequential(
            [
                tf.keras.Input([POINTS, 3]),
                tf.keras.layers.Dense(WIDTH, activation="relu"),
                *(GatedBlock(is_slow) for _ in range(BLOCKS)),
                tf.keras.layers.GlobalMaxPooling1D(),
                tf.keras.layers.Dense(CLASSES),
            ]
        )
        optimizer = tf.keras.optimizers.Adam(1e-3)
        optimizer.build(model.trainable_variables)

    def loss_of(model: Any, batch: Any) -> Any:
        seen, wanted = batch
        scores = model(seen, training=True)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=wanted, logits=scores)
        return tf.reduce_mean(losses)

    train_step = step_of(strategy, model, optimizer, loss_of)
    dataset = tf.data.Dataset.from_tensor_slices((points, labels))
    dataset = dataset.batch(BATCH, drop_remainder=True).cache().repeat().prefetch(4)
    source = strategy.experimental_distribute_dataset(dataset)
    for _, batch in zip(range(STEPS), source, strict=False):
        train_step(batch)
        clock.step_ended()
