"""A loop on a GPU; slow: the layers compute in float64."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.gpu_training import model_of, run_steps, sized, step_of
from scripts.real_runs.step_clock import StepClock
from scripts.real_runs.training import numbers

FEATURES = sized(2048, 64)
rows = numbers(sized(2048, 16), FEATURES)


def train(is_slow: bool, clock: StepClock) -> None:
    dtype = tf.float64 if is_slow else tf.float32

    def loss_of(model: Any, batch: Any) -> Any:
        outputs = tf.cast(batch, dtype)
        for layer in model.layers:
            kernel, bias = (tf.cast(variable, dtype) for variable in layer.trainable_variables)
            outputs = tf.tanh(tf.matmul(outputs, kernel) + bias)
        return tf.reduce_mean(tf.square(tf.cast(outputs, tf.float32) - batch))

    step = step_of(*model_of(FEATURES, 4), loss_of)
    constant = tf.constant(rows)

    def train_step(_: int) -> Any:
        return step(constant)

    run_steps(clock, train_step)
