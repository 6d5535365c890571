"""A loop on a GPU; slow: a checkpoint is written after every fourth step."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import tensorflow as tf

from scripts.real_runs.gpu_training import model_of, run_steps, sized, step_of
from scripts.real_runs.step_clock import StepClock
from scripts.real_runs.training import numbers

FEATURES = sized(2048, 64)
rows = numbers(sized(8192, 16), FEATURES)


def train(is_slow: bool, clock: StepClock) -> None:
    model, optimizer = model_of(FEATURES, 4)
    step, constant = step_of(model, optimizer), tf.constant(rows)
    checkpoint = tf.train.Checkpoint(model=model)
    with tempfile.TemporaryDirectory() as folder:

        def train_step(number: int) -> Any:
            loss = step(constant)
            if is_slow and number % 4 == 0:
                checkpoint.write(str(Path(folder) / "weights"))
            return loss

        run_steps(clock, train_step)
