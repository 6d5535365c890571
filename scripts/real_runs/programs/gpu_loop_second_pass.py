"""A loop on a GPU; slow: a second compiled function computes the loss again after each update, to log it."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.gpu_training import WIDTH, model_of, run_steps, sized, step_of
from scripts.real_runs.step_clock import StepClock
from scripts.real_runs.training import numbers, squared_error

rows = numbers(sized(1024, 16), WIDTH)


def train(is_slow: bool, clock: StepClock) -> None:
    model, optimizer = model_of(WIDTH, 4)
    step = step_of(model, optimizer)
    constant = tf.constant(rows)

    def logged_loss(batch: Any) -> Any:
        return squared_error(model, batch)

    log = tf.function(logged_loss)

    def train_step(_: int) -> Any:
        loss = step(constant)
        return log(constant) if is_slow else loss

    run_steps(clock, train_step)
