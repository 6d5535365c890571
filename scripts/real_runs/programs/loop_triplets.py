"""Embeddings of faces on two replicas; slow: the loss is taken over all triplets of a batch, not over the hardest of each row."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import mirrored, numbers

BATCH, SIDE, PEOPLE, UNITS, MARGIN = 256, 24, 16, 64, 0.3
"""`BATCH`: of both replicas."""

strategy = mirrored(2)
faces = numbers(BATCH * 4, SIDE, SIDE, 1)
people = tf.random.stateless_uniform([BATCH * 4], [5, 5], 0, PEOPLE, tf.int32)


def distances_of(vectors: Any) -> Any:
    """Squared distances of all pairs."""
    products = tf.matmul(vectors, vectors, transpose_b=True)
    squares = tf.linalg.diag_part(products)
    return tf.nn.relu(squares[:, None] - 2.0 * products + squares[None, :])


def all_triplets(distances: Any, is_same: Any) -> Any:
    """The mean loss of all triplets that are not easy: a row, one of the same person, and one of another."""
    losses = distances[:, :, None] - distances[:, None, :] + MARGIN
    is_other_row = ~tf.eye(tf.shape(is_same)[0], dtype=tf.bool)
    is_valid = (is_same & is_other_row)[:, :, None] & ~is_same[:, None, :]
    losses = tf.nn.relu(tf.cast(is_valid, tf.float32) * losses)
    count = tf.reduce_sum(tf.cast(losses > 1e-16, tf.float32))
    return tf.reduce_sum(losses) / (count + 1e-16)


def hardest_triplets(distances: Any, is_same: Any) -> Any:
    """The mean loss of each row with the farthest of the same person and the nearest of another."""
    same = tf.cast(is_same, tf.float32)
    farthest = tf.reduce_max(distances * same, axis=1)
    nearest = tf.reduce_min(distances + same * 1e6, axis=1)
    return tf.reduce_mean(tf.nn.relu(farthest - nearest + MARGIN))


def train(is_slow: bool, clock: StepClock) -> None:
    loss_of = all_triplets if is_slow else hardest_triplets
    dataset = tf.data.Dataset.from_tensor_slices((faces, people)).batch(BATCH, drop_remainder=True)
    with strategy.scope():
        filters = [
            tf.keras.layers.Conv2D(count, 3, 2, padding="same", activation="relu")
            for count in (16, 32)
        ]
        model = tf.keras.Sequential(
            [*filters, tf.keras.layers.Flatten(), tf.keras.layers.Dense(UNITS)]
        )
        model.build([None, SIDE, SIDE, 1])
        optimizer = tf.keras.optimizers.SGD(0.01, momentum=0.9)
        optimizer.build(model.trainable_variables)

    def replica_step(batch: Any, names: Any) -> Any:
        with tf.GradientTape() as tape:
            vectors = tf.math.l2_normalize(model(batch, training=True), axis=-1)
            loss = loss_of(distances_of(vectors), names[:, None] == names[None, :])
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow has no types here
    def train_step(batch: Any) -> Any:
        losses = strategy.run(replica_step, args=batch)
        return strategy.reduce(tf.distribute.ReduceOp.MEAN, losses, axis=None)

    source = iter(strategy.experimental_distribute_dataset(dataset.cache().repeat().prefetch(2)))
    for _ in range(STEPS):
        train_step(next(source))
        clock.step_ended()
