"""A recommender on two replicas that share a table of counts under a lock; slow: the lock is held for the forward pass, too."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import mirrored, numbers

BATCH, FEATURES, ITEMS, UNITS, WIDTH = 256, 256, 5000, 256, 1024

strategy = mirrored(2)
features = numbers(BATCH * 4, FEATURES)
items = tf.random.stateless_uniform([BATCH * 4], [3, 4], 0, ITEMS, tf.int64)


class Towers(tf.keras.Model):  # type: ignore[misc]  # TensorFlow has no types here
    """Scores of users and items; a user's tower stands on an encoder that is not trained."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = tf.keras.Sequential(
            [tf.keras.layers.Dense(WIDTH, activation="gelu") for _ in range(2)]
        )
        self.encoder.build([None, FEATURES])
        self.encoder.trainable = False
        self.user = tf.keras.Sequential(
            [tf.keras.layers.Dense(UNITS, activation="gelu") for _ in range(2)]
        )
        self.user.build([None, WIDTH])
        self.item = tf.keras.layers.Embedding(ITEMS, UNITS)
        self.item.build([None])

    def call(self, rows: Any, names: Any) -> Any:
        return tf.reduce_sum(self.user(self.encoder(rows)) * self.item(names), axis=-1)


def train(is_slow: bool, clock: StepClock) -> None:
    dataset = tf.data.Dataset.from_tensor_slices((features, items)).batch(BATCH).cache()
    counts = tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, default_value=0.0)
    section = tf.CriticalSection(name="counts")
    with strategy.scope():
        towers = Towers()
        optimizer = tf.keras.optimizers.SGD(0.01)
        optimizer.build(towers.trainable_variables)

    def weights_of(names: Any) -> Any:
        """How much a row counts: the less the more often its item was seen."""
        seen = counts.lookup(names)
        counts.insert(names, seen + 1.0)
        return tf.math.rsqrt(seen + 1.0)

    def loss_of(rows: Any, names: Any) -> Any:
        def weighted() -> Any:
            return weights_of(names) * tf.nn.softplus(-towers(rows, names))

        if is_slow:
            return tf.reduce_mean(section.execute(weighted))
        weights = section.execute(lambda: weights_of(names))
        return tf.reduce_mean(weights * tf.nn.softplus(-towers(rows, names)))

    def replica_step(rows: Any, names: Any) -> Any:
        variables = towers.trainable_variables
        with tf.GradientTape() as tape:
            loss = loss_of(rows, names)
        gradients = tape.gradient(loss, variables)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return loss

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow has no types here
    def train_step(batch: Any) -> Any:
        losses = strategy.run(replica_step, args=batch)
        return strategy.reduce(tf.distribute.ReduceOp.MEAN, losses, axis=None)

    source = iter(strategy.experimental_distribute_dataset(dataset.repeat().prefetch(2)))
    for _ in range(STEPS):
        train_step(next(source))
        clock.step_ended()
