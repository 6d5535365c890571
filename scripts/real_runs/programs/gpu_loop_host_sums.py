"""A loop on a GPU, gradients of four small batches summed for an update; slow: the sums are variables on the CPU."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.gpu_training import model_of, run_steps, sized
from scripts.real_runs.step_clock import StepClock
from scripts.real_runs.training import numbers, squared_error

PARTS, BATCH, FEATURES = 4, sized(8192, 16), sized(1024, 64)
rows = numbers(BATCH, FEATURES)


def train(is_slow: bool, clock: StepClock) -> None:
    model, optimizer = model_of(FEATURES, 6)
    variables = model.trainable_variables
    optimizer.build(variables)
    with tf.device("/CPU:0" if is_slow else None):
        sums = [tf.Variable(tf.zeros_like(variable)) for variable in variables]

    def add_once(batch: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = squared_error(model, batch)
        for total, gradient in zip(sums, tape.gradient(loss, variables), strict=True):
            total.assign_add(gradient)
        return loss

    def apply_once() -> None:
        means = [total / PARTS for total in sums]
        optimizer.apply_gradients(zip(means, variables, strict=True))
        for total in sums:
            total.assign(tf.zeros_like(total))

    add, apply, constant = tf.function(add_once), tf.function(apply_once), tf.constant(rows)

    def train_step(_: int) -> Any:
        losses = [add(constant) for _ in range(PARTS)]
        apply()
        return losses[-1]

    run_steps(clock, train_step)
