"""A loop on two replicas; slow twice: a generator makes each batch in Python, and every fourth step writes a checkpoint."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import dense, mirrored, step_of

BATCH, FEATURES = 192, 192

strategy = mirrored(2)


def made() -> Any:
    rows = [[(row * place) % 83 / 83 for place in range(FEATURES)] for row in range(BATCH)]
    return np.asarray(rows, np.float32)


def train(is_slow: bool, clock: StepClock) -> None:
    ready = made()

    def batches() -> Iterator[Any]:
        while True:
            yield made() if is_slow else ready

    signature = tf.TensorSpec([BATCH, FEATURES], tf.float32)
    dataset = tf.data.Dataset.from_generator(batches, output_signature=signature)
    model, optimizer = dense(strategy, FEATURES, 512, 512)
    step, source = step_of(strategy, model, optimizer), iter(dataset.prefetch(2))
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(STEPS):
            step(next(source))
            if is_slow and number % 4 == 1:
                checkpoint.write(f"{folder}/weights")
            clock.step_ended()
