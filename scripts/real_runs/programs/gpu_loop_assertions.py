"""A loop on a GPU; slow: an assertion on the values of each layer has to hold before the next layer begins."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.gpu_training import model_of, run_steps, sized, step_of
from scripts.real_runs.step_clock import StepClock
from scripts.real_runs.training import numbers, squared_error

FEATURES = sized(2048, 64)
rows = numbers(sized(1024, 16), FEATURES)


def checked_error(model: Any, batch: Any) -> Any:
    outputs = batch
    for layer in model.layers:
        outputs = layer(outputs)
        largest = tf.reduce_max(tf.abs(outputs))
        with tf.control_dependencies([tf.debugging.assert_less(largest, 1e4)]):
            outputs = tf.identity(outputs)
    return tf.reduce_mean(tf.square(outputs - batch))


def train(is_slow: bool, clock: StepClock) -> None:
    step = step_of(*model_of(FEATURES, 24), checked_error if is_slow else squared_error)
    constant = tf.constant(rows)

    def train_step(_: int) -> Any:
        return step(constant)

    run_steps(clock, train_step)
