"""A loop on one device; slow: the step first asks Python for edit distances of labels, by `tf.py_function`."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, FEATURES, LENGTH = 384, 384, 40

tf.config.threading.set_intra_op_parallelism_threads(1)
features = tf.random.stateless_normal([BATCH, FEATURES], seed=[1, 2])
labels = tf.random.stateless_uniform([12, LENGTH], seed=[3, 4], maxval=9, dtype=tf.int32)


def distance(left: list[int], right: list[int]) -> int:
    row = list(range(len(right) + 1))
    for number, letter in enumerate(left, 1):
        before, row[0] = row[0], number
        for place, other in enumerate(right, 1):
            before, row[place] = (
                row[place],
                min(row[place] + 1, row[place - 1] + 1, before + (letter != other)),
            )
    return row[-1]


def mean_distance(texts: Any) -> float:
    lists = texts.numpy().tolist()
    return sum(map(distance, lists, lists[1:])) / len(lists)


def by_python() -> Any:
    return tf.py_function(mean_distance, [labels], tf.float32)


def mean_by_ops() -> Any:
    left, right = (tf.sparse.from_dense(part + 1) for part in (labels[:-1], labels[1:]))
    return tf.reduce_sum(tf.edit_distance(left, right, normalize=False)) / len(labels)


def train(is_slow: bool, clock: StepClock) -> None:
    layers = [tf.keras.layers.Dense(units, activation="relu") for units in (1024, FEATURES)]
    model = tf.keras.Sequential(layers)
    model.build([BATCH, FEATURES])
    optimizer = tf.keras.optimizers.SGD(0.01)

    def train_step(rows: Any) -> Any:
        weight = tf.constant(30.0)
        if is_slow:
            distances = mean_by_ops() if clock.is_advised else by_python()
            weight = tf.ensure_shape(distances, [])
        with tf.GradientTape() as tape:
            # The model waits for the weight.
            loss = tf.reduce_mean(tf.square(model(weight / 30.0 * rows, training=True) - rows))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    compiled_step = tf.function(train_step)
    for _ in range(STEPS):
        compiled_step(features)
        clock.step_ended()
