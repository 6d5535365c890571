"""A loop on two replicas; slow: a recurrence of tiny ops runs step by step in `tf.while_loop`, where one sum would do."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import dense, mirrored, numbers, squared_error, step_of

BATCH, FEATURES, ROUNDS = 192, 256, 256

strategy = mirrored(2)
rows = tf.constant(numbers(BATCH, FEATURES))
decay = tf.constant([0.9 ** (ROUNDS - 1 - place) for place in range(ROUNDS)])


def one_by_one(model: Any, batch: Any) -> Any:
    series = tf.reduce_mean(batch, axis=0)

    def advance(place: Any, level: Any) -> Any:
        return place + 1, 0.9 * level + series[place]

    _, level = tf.while_loop(lambda place, _: place < ROUNDS, advance, (0, tf.constant(0.0)))
    return squared_error(model, batch) + 1e-6 * level


def at_once(model: Any, batch: Any) -> Any:
    return squared_error(model, batch) + 1e-6 * tf.reduce_sum(tf.reduce_mean(batch, axis=0) * decay)


def train(is_slow: bool, clock: StepClock) -> None:
    step = step_of(
        strategy, *dense(strategy, FEATURES, 512, 512), one_by_one if is_slow else at_once
    )
    for _ in range(STEPS):
        step(rows)
        clock.step_ended()
