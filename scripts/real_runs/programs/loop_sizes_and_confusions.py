"""A segmentation of pictures; slow twice: confusions are the sum of a table for each pixel, and a thread adds up the sizes of all records in memory to find a leak."""

from __future__ import annotations

import sys
import threading
from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

BATCH, SIDE, KINDS, RECORDS, PAUSE_S = 6, 40, 24, 9000, 0.02

tf.config.threading.set_intra_op_parallelism_threads(1)
pictures = tf.constant(numbers(BATCH * 4, SIDE, SIDE, 3))
kinds = tf.random.stateless_uniform([BATCH * 4, SIDE, SIDE], [8, 3], 0, KINDS, tf.int32)


records = [
    {"path": f"picture{number}.png", "size": [SIDE, number], "tags": {"day": number % 7}}
    for number in range(RECORDS)
]


def size_of(value: Any) -> int:
    """The bytes of a value, with all that it holds."""
    size = sys.getsizeof(value)
    if isinstance(value, dict):
        return size + sum(size_of(key) + size_of(held) for key, held in value.items())
    return size + sum(map(size_of, value)) if isinstance(value, list) else size


def census(is_over: threading.Event, sizes: list[int]) -> None:
    while not is_over.wait(PAUSE_S):
        sizes.append(size_of(records))


def confusions(truth: Any, guesses: Any, is_slow: bool) -> Any:
    truth, guesses = tf.reshape(truth, [-1]), tf.reshape(guesses, [-1])
    if is_slow:
        tables = tf.one_hot(truth, KINDS)[:, :, None] * tf.one_hot(guesses, KINDS)[:, None]
        return tf.reduce_sum(tables, axis=0)
    pairs = tf.math.bincount(truth * KINDS + guesses, minlength=KINDS**2, maxlength=KINDS**2)
    return tf.cast(tf.reshape(pairs, [KINDS, KINDS]), tf.float32)


def train(is_slow: bool, clock: StepClock) -> None:
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [
            tf.keras.Input([SIDE, SIDE, 3]),
            layers.Conv2D(24, 3, padding="same", activation="relu"),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.Conv2D(KINDS, 1),
        ]
    )
    optimizer = tf.keras.optimizers.SGD(1e-2)
    optimizer.build(model.trainable_variables)
    seen = tf.Variable(tf.zeros([KINDS, KINDS]))

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow has no types here
    def train_step(batch: Any, truth: Any) -> Any:
        with tf.GradientTape() as tape:
            scores = model(batch, training=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(truth, scores)
            loss = tf.reduce_mean(losses)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        guesses = tf.argmax(scores, axis=-1, output_type=tf.int32)
        seen.assign_add(confusions(truth, guesses, is_slow))
        return loss

    is_over, sizes = threading.Event(), list[int]()
    if is_slow:
        threading.Thread(target=census, args=(is_over, sizes), daemon=True).start()
    dataset = tf.data.Dataset.from_tensor_slices((pictures, kinds)).batch(BATCH).cache().repeat()
    names = [f"picture {number}" for number in range(BATCH)]
    for batch, truth in dataset.prefetch(2).take(STEPS):
        loss = float(train_step(batch, truth))
        names = [f"{name.split(' of ')[0]} of {loss:.3f}" for name in names]
        clock.step_ended()
    is_over.set()
