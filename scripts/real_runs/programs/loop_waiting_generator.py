"""A loop on two replicas; slow: a generator waits for each batch, as for a server."""

from __future__ import annotations

import time
from collections.abc import Iterator
from multiprocessing.pool import ThreadPool
from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import dense, mirrored, numbers, step_of

BATCH, FEATURES, SECONDS = 192, 256, 0.015

strategy = mirrored(2)
rows = numbers(BATCH, FEATURES)


def train(is_slow: bool, clock: StepClock) -> None:
    def load(_key: int) -> Any:
        time.sleep(SECONDS)
        return rows

    def batches() -> Iterator[Any]:
        if clock.is_advised:
            with ThreadPool(8) as pool:
                yield from pool.imap(load, range(2 * STEPS))
        while True:
            if is_slow:
                time.sleep(SECONDS)
            yield rows

    signature = tf.TensorSpec([BATCH, FEATURES], tf.float32)
    dataset = tf.data.Dataset.from_generator(batches, output_signature=signature).prefetch(2)
    distributed = iter(strategy.experimental_distribute_dataset(dataset))
    step = step_of(strategy, *dense(strategy, FEATURES, 512, 512))
    for _ in range(STEPS):
        step(next(distributed))
        clock.step_ended()
