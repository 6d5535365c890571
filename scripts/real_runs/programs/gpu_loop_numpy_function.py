"""A loop on a GPU; slow: `tf.numpy_function` ranks the outputs inside the step."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.gpu_training import WIDTH, model_of, run_steps, sized, step_of
from scripts.real_runs.step_clock import StepClock
from scripts.real_runs.training import numbers, squared_error

rows = numbers(sized(1024, 16), WIDTH)


def ranks(outputs: Any) -> Any:
    return np.argsort(outputs, axis=1).mean(axis=1).astype(np.float32)


def train(is_slow: bool, clock: StepClock) -> None:
    def ranked(model: Any, batch: Any) -> Any:
        order = tf.numpy_function(ranks, [batch[:, :512]], tf.float32)
        return squared_error(model, batch) + tf.reduce_mean(order)

    step = step_of(*model_of(WIDTH, 4), *([ranked] if is_slow else []))
    constant = tf.constant(rows)

    def train_step(_: int) -> Any:
        return step(constant)

    run_steps(clock, train_step)
