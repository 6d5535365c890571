"""A loop on a GPU; slow: each step makes the matrix that smooths its targets again, which is always the same."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.gpu_training import model_of, run_steps, sized, step_of
from scripts.real_runs.step_clock import StepClock
from scripts.real_runs.training import numbers

BATCH, FEATURES = sized(2048, 16), sized(8192, 64)
rows = numbers(BATCH, FEATURES)


def smoothing() -> Any:
    """A matrix that takes four times the mean of each feature and its neighbours."""
    positions = tf.range(FEATURES, dtype=tf.float32)
    near = tf.exp(-tf.square((positions[:, None] - positions) / 3))
    once = near / tf.reduce_sum(near, axis=1, keepdims=True)
    twice = once @ once
    return twice @ twice


def train(is_slow: bool, clock: StepClock) -> None:
    ready = smoothing()

    def loss_of(model: Any, batch: Any) -> Any:
        targets = batch @ (smoothing() if is_slow else ready)
        return tf.reduce_mean(tf.square(model(batch, training=True) - targets))

    step, constant = step_of(*model_of(FEATURES, 3), loss_of), tf.constant(rows)

    def train_step(_: int) -> Any:
        return step(constant)

    run_steps(clock, train_step)
