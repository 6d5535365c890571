"""A loop on two replicas; slow: the outputs of each step are written as text, and forced to the disk."""

from __future__ import annotations

import os
import tempfile
from typing import IO, Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import dense, mirrored, numbers, step_of

BATCH, FEATURES = 192, 256

strategy = mirrored(2)
rows = tf.constant(numbers(BATCH, FEATURES))


def write_down(log: IO[str], number: int, outputs: Any) -> None:
    for row in outputs.numpy()[:48]:
        log.write(f"{number} " + " ".join(f"{value:.6f}" for value in row) + "\n")
        log.flush()
        os.fsync(log.fileno())


def train(is_slow: bool, clock: StepClock) -> None:
    model, optimizer = dense(strategy, FEATURES, 512, 512)
    step = step_of(strategy, model, optimizer)
    with tempfile.NamedTemporaryFile("w", encoding="utf-8") as log:
        for number in range(STEPS):
            step(rows)
            if is_slow:
                write_down(log, number, rows)
            clock.step_ended()
