"""Vectors of words on two replicas; slow: gradients are made finite as whole tables, which the replicas then sum, not as the rows of the batch."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import mirrored

BATCH, WORDS, WIDTH, LENGTH, UNITS = 128, 60000, 48, 12, 512

strategy = mirrored(2)
words = tf.random.stateless_uniform([BATCH * 4, LENGTH + 1], [5, 6], 0, WORDS, tf.int32)


class Vectors(tf.keras.Model):  # type: ignore[misc]  # TensorFlow has no types here
    """Foretells the vector of a word from those of the words before it."""

    def __init__(self) -> None:
        super().__init__()
        self.table = tf.keras.layers.Embedding(WORDS, WIDTH)
        self.table.build([None])
        self.hidden = tf.keras.Sequential(
            [tf.keras.layers.Dense(UNITS, activation="tanh") for _ in range(3)]
        )
        self.hidden.build([None, LENGTH * WIDTH])
        self.out = tf.keras.layers.Dense(WIDTH)
        self.out.build([None, UNITS])

    def call(self, text: Any) -> Any:
        before = tf.reshape(self.table(text[:, :-1]), [-1, LENGTH * WIDTH])
        return tf.reduce_sum(self.out(self.hidden(before)) * self.table(text[:, -1]), axis=1)


def finite(values: Any) -> Any:
    return tf.where(tf.math.is_finite(values), values, 0.0)


def finite_rows(gradient: Any) -> Any:
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(finite(gradient.values), gradient.indices, gradient.dense_shape)
    return finite(gradient)


def train(is_slow: bool, clock: StepClock) -> None:
    with strategy.scope():
        model = Vectors()
        optimizer = tf.keras.optimizers.SGD(1e-2)
        optimizer.build(model.trainable_variables)

    def replica_step(text: Any) -> Any:
        variables = model.trainable_variables
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.nn.softplus(-model(text)))
        gradients = tape.gradient(loss, variables)
        gradients = [
            finite(tf.convert_to_tensor(g)) if is_slow else finite_rows(g) for g in gradients
        ]
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return loss

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow has no types here
    def train_step(text: Any) -> Any:
        losses = strategy.run(replica_step, args=(text,))
        return strategy.reduce(tf.distribute.ReduceOp.MEAN, losses, axis=None)

    dataset = tf.data.Dataset.from_tensor_slices(words).batch(2 * BATCH).cache().repeat()
    source = iter(strategy.experimental_distribute_dataset(dataset.prefetch(2)))
    for _ in range(STEPS):
        train_step(next(source))
        clock.step_ended()
