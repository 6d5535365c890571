"""A loop on a GPU; slow: a normalization in the middle of the model is placed on the CPU, so that tensors go there and back."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.gpu_training import run_steps, sized, step_of
from scripts.real_runs.step_clock import StepClock
from scripts.real_runs.training import numbers

FEATURES, NARROW = sized(2048, 64), sized(1024, 16)
rows = numbers(sized(4096, 16), FEATURES)


def normalized(outputs: Any) -> Any:
    mean, variance = tf.nn.moments(outputs, axes=-1, keepdims=True)
    return (outputs - mean) * tf.math.rsqrt(variance + 1e-6)


def train(is_slow: bool, clock: StepClock) -> None:
    widths = [*[FEATURES] * 4, NARROW, *[FEATURES] * 4]
    model = tf.keras.Sequential([tf.keras.layers.Dense(width, "tanh") for width in widths])
    model.build([None, FEATURES])

    def loss_of(model: Any, batch: Any) -> Any:
        outputs = batch
        for layer in model.layers:
            outputs = layer(outputs)
            if layer.units == NARROW:
                with tf.device("/CPU:0" if is_slow else None):
                    outputs = normalized(outputs)
        return tf.reduce_mean(tf.square(outputs - batch))

    step, constant = step_of(model, tf.keras.optimizers.SGD(1e-3), loss_of), tf.constant(rows)

    def train_step(_: int) -> Any:
        return step(constant)

    run_steps(clock, train_step)
