"""A loop on a GPU; slow: each batch is a NumPy array, which the call copies to the GPU."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.gpu_training import WIDTH, model_of, run_steps, sized, step_of
from scripts.real_runs.step_clock import StepClock
from scripts.real_runs.training import numbers

rows = numbers(sized(2048, 16), WIDTH)


def train(is_slow: bool, clock: StepClock) -> None:
    step = step_of(*model_of(WIDTH, 3))
    constant = tf.constant(rows)

    def train_step(_: int) -> Any:
        return step(tf.convert_to_tensor(rows) if is_slow else constant)

    run_steps(clock, train_step)
