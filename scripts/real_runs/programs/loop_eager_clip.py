"""A loop on two replicas; slow: weights are clipped eagerly, one variable after the other, after each compiled step."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import dense, mirrored, numbers, step_of

BATCH, FEATURES = 256, 128

strategy = mirrored(2)
batches = tf.data.Dataset.from_tensors(numbers(BATCH, FEATURES)).cache().repeat().prefetch(2)


def train(is_slow: bool, clock: StepClock) -> None:
    model, optimizer = dense(strategy, FEATURES, *[384] * 10)
    step = step_of(strategy, model, optimizer)

    def clip() -> None:
        for variable in model.trainable_variables:
            variable.assign(tf.clip_by_value(variable, -2.0, 2.0))

    clip_all: Any = tf.function(clip) if clock.is_advised else clip
    source: Any = iter(batches)
    for _ in range(STEPS):
        float(step(next(source)))
        if is_slow:
            clip_all()
        clock.step_ended()
