"""A loop on a GPU; slow: the weights are hundreds of small variables, each with its kernels."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.gpu_training import model_of, run_steps, sized
from scripts.real_runs.step_clock import StepClock
from scripts.real_runs.training import numbers

FEATURES, PARTS = sized(2048, 64), sized(256, 16)
rows = numbers(sized(1024, 16), FEATURES)


def train(is_slow: bool, clock: StepClock) -> None:
    model, optimizer = model_of(FEATURES, 4)
    scales = [tf.Variable(tf.ones([FEATURES // PARTS])) for _ in range(PARTS)]
    scale = tf.Variable(tf.ones([FEATURES]))
    constant = tf.constant(rows)
    optimizer.build([*model.trainable_variables, *scales, scale])

    def step_once(batch: Any) -> Any:
        with tf.GradientTape() as tape:
            factor = tf.concat(scales, 0) if is_slow else scale
            loss = tf.reduce_mean(tf.square(model(batch * factor) - batch))
        variables = [*model.trainable_variables, *(scales if is_slow else [scale])]
        gradients = tape.gradient(loss, variables)
        for variable, gradient in zip(variables, gradients, strict=True):
            variable.assign_sub(1e-3 * gradient)
        return loss

    step = tf.function(step_once)

    def train_step(_: int) -> Any:
        return step(constant)

    run_steps(clock, train_step)
