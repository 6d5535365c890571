"""A model of sessions that looks up items on a sphere; slow: the whole table is normalized before rows of it are looked up."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock

SESSIONS, LENGTH, ITEMS, UNITS = 64, 20, 30_000, 64

tf.config.threading.set_intra_op_parallelism_threads(1)


class SessionModel(tf.keras.Model):  # type: ignore[misc]  # TensorFlow has no types here
    """What a session goes on with: items on a sphere, read by a recurrent network."""

    def __init__(self, is_slow: bool) -> None:
        super().__init__()
        self.is_slow = is_slow
        self.table = self.add_weight(shape=(ITEMS, UNITS), initializer="random_normal")
        self.reader = tf.keras.layers.GRU(96)
        self.out = tf.keras.layers.Dense(UNITS)

    def items(self, names: Any) -> Any:
        table = tf.convert_to_tensor(self.table)
        if self.is_slow:
            return tf.gather(tf.math.l2_normalize(table, axis=-1), names)
        return tf.math.l2_normalize(tf.nn.embedding_lookup(self.table.value, names), axis=-1)

    def call(self, names: Any) -> Any:
        states = self.out(self.reader(self.items(names[:, :-1])))
        return states @ tf.transpose(self.items(names[:, -1]))


def train(is_slow: bool, clock: StepClock) -> None:
    names = tf.random.stateless_uniform([SESSIONS * 8, LENGTH], [1, 9], 0, ITEMS, tf.int32)
    dataset = tf.data.Dataset.from_tensor_slices(names).batch(SESSIONS, drop_remainder=True)
    model = SessionModel(is_slow)
    model(names[:SESSIONS])
    optimizer = tf.keras.optimizers.SGD(0.1)
    optimizer.build(model.trainable_variables)
    own = tf.range(SESSIONS)

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow has no types here
    def train_step(batch: Any) -> Any:
        """Tell the next item of a session from those of the others."""
        with tf.GradientTape() as tape:
            scores = model(batch, training=True) * 10.0
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(own, scores))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    source = iter(dataset.cache().repeat().prefetch(2))
    for _ in range(STEPS):
        train_step(next(source))
        clock.step_ended()
