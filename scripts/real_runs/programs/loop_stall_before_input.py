"""A loop over `tf.data`; slow: a report in Python between the steps, while the input pipeline works ahead.

Without the report each step waits for its batch, so that less is gained than the report takes.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

ROWS, WIDTH, DEPTH, WORDS = 128, 640, 12, 200_000

tf.config.threading.set_intra_op_parallelism_threads(1)
rows, first, mix = numbers(512, 64), numbers(64, WIDTH), numbers(WIDTH, WIDTH)


def prepare(batch: Any) -> Any:
    hidden = tf.tanh(batch @ first)
    for _ in range(DEPTH):
        hidden = tf.tanh(hidden @ mix)
    return hidden


def report() -> dict[int, int]:
    counts: dict[int, int] = {}
    for place in range(WORDS):
        counts[place % 97] = counts.get(place % 97, 0) + place
    return counts


def train(is_slow: bool, clock: StepClock) -> None:
    weight = tf.Variable(numbers(WIDTH, WIDTH) * 0.01)

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow has no types here
    def train_step(batch: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.tanh(batch @ weight) @ weight))
        weight.assign_sub(0.01 * tape.gradient(loss, weight))
        return loss

    data = tf.data.Dataset.from_tensor_slices(rows).repeat().batch(ROWS).map(prepare).prefetch(4)
    options = tf.data.Options()
    options.autotune.enabled = False
    for batch in data.with_options(options).take(STEPS):
        train_step(batch)
        if is_slow:
            report()
        clock.step_ended()
