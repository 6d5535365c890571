"""A loop on two replicas; slow: `model.predict` shows what the model says of four rows after each step."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import dense, mirrored, numbers, step_of

BATCH, FEATURES = 512, 384

strategy = mirrored(2)
batches = tf.data.Dataset.from_tensors(numbers(BATCH, FEATURES)).cache().repeat().prefetch(2)
shown = numbers(4, FEATURES, seed=2)


def train(is_slow: bool, clock: StepClock) -> None:
    model, optimizer = dense(strategy, FEATURES, 1024, 1024)
    step = step_of(strategy, model, optimizer)
    source: Any = iter(batches)
    answers: list[float] = []
    for _ in range(STEPS):
        float(step(next(source)))
        if is_slow:
            answers.append(float(model.predict(shown, verbose=0).mean()))
        clock.step_ended()
