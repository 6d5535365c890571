"""A loop on two replicas; slow: the predictions of 96 rows are taken out of a tensor one by one."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import dense, mirrored, numbers, step_of

BATCH, FEATURES, READ = 512, 256, 96

strategy = mirrored(2)
batches = tf.data.Dataset.from_tensors(numbers(BATCH, FEATURES)).cache().repeat().prefetch(2)


def train(is_slow: bool, clock: StepClock) -> None:
    model, optimizer = dense(strategy, FEATURES, 896, 896)
    step = step_of(strategy, model, optimizer)
    rows = numbers(READ, FEATURES, seed=3)
    predict = tf.function(lambda batch: tf.reduce_max(model(batch), axis=1))
    source: Any = iter(batches)
    best: list[float] = []
    for _ in range(STEPS):
        float(step(next(source)))
        answers = predict(rows)
        if is_slow:
            answers = answers.numpy() if clock.is_advised else answers
            best.append(max(float(answers[index]) for index in range(READ)))
        else:
            best.append(float(answers.numpy().max()))
        clock.step_ended()
