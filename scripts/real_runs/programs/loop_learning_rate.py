"""A loop on two replicas that sets the learning rate and reads a loss in each step: nothing slows it down."""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import dense, mirrored, numbers, step_of

BATCH, FEATURES = 512, 256

strategy = mirrored(2)
batches = tf.data.Dataset.from_tensors(numbers(BATCH, FEATURES)).cache().repeat().prefetch(2)


def train(_is_slow: bool, clock: StepClock) -> None:
    model, optimizer = dense(strategy, FEATURES, 896, 896)
    step = step_of(strategy, model, optimizer)
    best: tuple[float, int] = (math.inf, 0)
    source: Any = iter(batches)
    for number in range(STEPS):
        optimizer.learning_rate.assign(1e-3 * (1 + math.cos(math.pi * number / STEPS)))
        best = min(best, (float(step(next(source))), number))
        clock.step_ended()
