"""A loop on a GPU; slow: the optimizer runs op by op outside of the compiled function."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.gpu_training import model_of, run_steps, sized
from scripts.real_runs.step_clock import StepClock
from scripts.real_runs.training import numbers, squared_error

FEATURES = sized(2048, 64)
rows = numbers(sized(1024, 16), FEATURES)


def train(is_slow: bool, clock: StepClock) -> None:
    model, _ = model_of(FEATURES, 12)
    optimizer = tf.keras.optimizers.Adam(1e-3)
    optimizer.build(model.trainable_variables)
    constant = tf.constant(rows)

    def gradients_of_once(batch: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = squared_error(model, batch)
        return loss, tape.gradient(loss, model.trainable_variables)

    gradients_of = tf.function(gradients_of_once)

    def apply(gradients: Any) -> None:
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    compiled = tf.function(apply)

    def train_step(_: int) -> Any:
        loss, gradients = gradients_of(constant)
        (apply if is_slow else compiled)(gradients)
        return loss

    run_steps(clock, train_step)
