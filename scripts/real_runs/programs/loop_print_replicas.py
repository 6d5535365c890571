"""A loop on three replicas; slow: each of them writes a layer with `tf.print` inside the step."""

from __future__ import annotations

import os
from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import dense, mirrored, numbers, squared_error, step_of

BATCH, FEATURES = 128, 256

strategy = mirrored(3)
rows = tf.constant(numbers(BATCH, FEATURES))


def printed(model: Any, batch: Any) -> Any:
    tf.print(model(batch[:80]), summarize=-1, output_stream=f"file://{os.devnull}")
    return squared_error(model, batch)


def train(is_slow: bool, clock: StepClock) -> None:
    model, optimizer = dense(strategy, FEATURES, 512, 512)
    step = step_of(strategy, model, optimizer, printed if is_slow else squared_error)
    for _ in range(STEPS):
        step(rows)
        clock.step_ended()
