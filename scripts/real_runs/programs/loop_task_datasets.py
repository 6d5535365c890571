"""Meta learning, a task per step; slow: the compiled step makes a data set of the task's rows and loops over it."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

TASKS, ROWS, FEATURES, UNITS, SHOTS, INNER_STEPS = 60, 240, 64, 256, 60, 4

tf.config.threading.set_intra_op_parallelism_threads(1)
tasks = tf.constant(numbers(TASKS, ROWS, FEATURES))


def started() -> list[Any]:
    """Weights to begin a task with."""
    return [
        tf.Variable(numbers(FEATURES, UNITS) * 0.1),
        tf.Variable(numbers(UNITS, UNITS) * 0.1),
        tf.Variable(numbers(UNITS, FEATURES) * 0.1),
    ]


def loss_of(weights: tuple[Any, ...], rows: Any) -> Any:
    states = tf.tanh(tf.tanh(rows @ weights[0]) @ weights[1])
    return tf.reduce_mean(tf.square(states @ weights[2] - rows))


def descended(weights: tuple[Any, ...], rows: Any) -> tuple[Any, ...]:
    """Weights after a step of gradient descent on rows of a task."""
    with tf.GradientTape() as tape:
        tape.watch(weights)
        loss = loss_of(weights, rows)
    gradients = tape.gradient(loss, weights)
    return tuple(one - 0.05 * gradient for one, gradient in zip(weights, gradients, strict=True))


def train(is_slow: bool, clock: StepClock) -> None:
    start = started()

    def adapted_by_dataset(weights: tuple[Any, ...], rows: Any) -> tuple[Any, ...]:
        dataset = tf.data.Dataset.from_tensor_slices(rows).shuffle(ROWS, seed=3)
        for shots in dataset.batch(SHOTS, drop_remainder=True):
            weights = descended(weights, shots)
        return weights

    def adapted_by_order(weights: tuple[Any, ...], rows: Any) -> tuple[Any, ...]:
        order = tf.reshape(tf.random.shuffle(tf.range(ROWS), seed=3), [INNER_STEPS, SHOTS])
        for place in tf.range(INNER_STEPS):
            weights = descended(weights, tf.gather(rows, order[place]))
        return weights

    adapted = adapted_by_dataset if is_slow else adapted_by_order

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow has no types here
    def train_step(task: Any) -> Any:
        """Move the first weights towards those that a task ends with, and see how they do for all."""
        weights = adapted(tuple(variable.read_value() for variable in start), tasks[task])
        for variable, one in zip(start, weights, strict=True):
            variable.assign_add(0.1 * (one - variable))
        return loss_of(tuple(start), tf.reshape(tasks, [-1, FEATURES]))

    for number in range(STEPS):
        train_step(tf.constant(number % TASKS))
        clock.step_ended()
