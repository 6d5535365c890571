"""A loop on two replicas over words that Python spells; slow: that function is defined within the one that `map` takes, so
that AutoGraph converts it, and each of its calls goes through AutoGraph.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import mirrored

BATCH, LENGTH, WORDS, UNITS = 64, 48, 5000, 128

strategy = mirrored(2)
words = np.random.default_rng(3).integers(0, WORDS, (2048, LENGTH))


def reversed_of(rows: Any) -> Any:
    return np.array([[int(str(word)[::-1]) % WORDS for word in row] for row in rows.numpy()])


def converted(rows: Any) -> Any:
    def reversed_here(rows: Any) -> Any:
        return np.array([[int(str(word)[::-1]) % WORDS for word in row] for row in rows.numpy()])

    return tf.ensure_shape(tf.py_function(reversed_here, [rows], tf.int64), [None, LENGTH])


def kept(rows: Any) -> Any:
    return tf.ensure_shape(tf.py_function(reversed_of, [rows], tf.int64), [None, LENGTH])


def train(is_slow: bool, clock: StepClock) -> None:
    rows = tf.data.Dataset.from_tensor_slices(words).repeat().shuffle(512, seed=1).batch(BATCH)
    spelled = rows.map(kept if clock.is_advised or not is_slow else converted)
    batches = iter(strategy.experimental_distribute_dataset(spelled.prefetch(2)))
    with strategy.scope():
        layers = tf.keras.layers
        model = tf.keras.Sequential(
            [
                layers.Embedding(WORDS, 64),
                layers.Conv1D(UNITS, 5, activation="relu"),
                layers.GlobalMaxPooling1D(),
                layers.Dense(1),
            ]
        )
        model.build([None, LENGTH])
        optimizer = tf.keras.optimizers.SGD(0.01)
        optimizer.build(model.trainable_variables)

    def replica_step(rows: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(rows, training=True))) / 2
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    def train_step(rows: Any) -> Any:
        return strategy.reduce("SUM", strategy.run(replica_step, args=(rows,)), axis=None)

    compiled_step = tf.function(train_step)
    for _ in range(STEPS):
        compiled_step(next(batches))
        clock.step_ended()
