"""A loop on two replicas; slow: every third step is followed by a full garbage collection, which is to save memory."""

from __future__ import annotations

import gc

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import dense, mirrored, numbers, step_of

BATCH, FEATURES = 128, 256

strategy = mirrored(2)
rows = tf.constant(numbers(BATCH, FEATURES))


def train(is_slow: bool, clock: StepClock) -> None:
    model, optimizer = dense(strategy, FEATURES, 768, 768)
    step = step_of(strategy, model, optimizer)
    # All that TensorFlow holds is visited, as in a program that runs alone.
    gc.unfreeze()
    for number in range(STEPS):
        step(rows)
        if is_slow and number % 3 == 0:
            gc.collect()
        clock.step_ended()
