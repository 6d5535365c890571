"""A loop on two replicas whose batches are ready; slow: processes that the script starts for them keep computing beside it."""

from __future__ import annotations

import multiprocessing
import os
from typing import Any

import numpy as np

BATCH, FEATURES = 256, 256


def augment(seed: int, batches: Any) -> None:
    """What a worker does: it makes the next rows while the last ones wait in the queue, and drops what nobody takes."""
    generator = np.random.default_rng(seed)
    rows = generator.standard_normal([BATCH, FEATURES])
    while True:
        rows = np.sort(np.tanh(rows + 0.1 * generator.standard_normal(rows.shape)), axis=0)
        if batches.empty():
            batches.put(rows.mean(axis=0))


def main() -> None:
    import tensorflow as tf

    from scripts.real_runs.step_clock import STEPS, StepClock, run_blocks
    from scripts.real_runs.training import dense, mirrored, numbers, step_of

    strategy = mirrored(2)
    ready = tf.constant(numbers(BATCH, FEATURES))

    def train(is_slow: bool, clock: StepClock) -> None:
        context = multiprocessing.get_context("spawn")
        batches = context.Queue(8)
        count = len(os.sched_getaffinity(0)) if is_slow else 0
        workers = [
            context.Process(target=augment, args=(n, batches), daemon=True) for n in range(count)
        ]
        for worker in workers:
            worker.start()
        for _ in workers[:1]:
            batches.get()
        step = step_of(strategy, *dense(strategy, FEATURES, 640, 640))
        for _ in range(STEPS):
            step(ready)
            clock.step_ended()
        for worker in workers:
            worker.kill()

    run_blocks(train)


if __name__ == "__main__":
    main()
