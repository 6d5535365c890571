"""A loop on two replicas; slow: the layers compute in float64."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import dense, mirrored, numbers, step_of

BATCH, FEATURES = 256, 256

strategy = mirrored(2)
rows = tf.constant(numbers(BATCH, FEATURES))


def in_float64(model: Any, batch: Any) -> Any:
    rows = batch
    for layer in model.layers:
        kernel, bias = (tf.cast(variable, tf.float64) for variable in layer.trainable_variables)
        rows = tf.matmul(tf.cast(rows, tf.float64), kernel) + bias
    return tf.reduce_mean(tf.square(tf.cast(rows, tf.float32) - batch))


def in_float32(model: Any, batch: Any) -> Any:
    rows = batch
    for layer in model.layers:
        kernel, bias = layer.trainable_variables
        rows = tf.matmul(rows, kernel) + bias
    return tf.reduce_mean(tf.square(rows - batch))


def train(is_slow: bool, clock: StepClock) -> None:
    model, optimizer = dense(strategy, FEATURES, 768, 768)
    step = step_of(strategy, model, optimizer, in_float64 if is_slow else in_float32)
    for _ in range(STEPS):
        step(rows)
        clock.step_ended()
