"""A loop on two replicas; slow: another process makes each batch, more slowly than the step, and hands it over in a queue."""

from __future__ import annotations

import multiprocessing
import time
from typing import Any

import numpy as np

BATCH, FEATURES, SECONDS = 192, 256, 0.012


def load(batches: Any) -> None:
    rows = np.random.default_rng(1).standard_normal([BATCH, FEATURES]).astype(np.float32)
    while True:
        time.sleep(SECONDS)
        batches.put(rows)


def main() -> None:
    import tensorflow as tf

    from scripts.real_runs.step_clock import STEPS, StepClock, run_blocks
    from scripts.real_runs.training import dense, mirrored, numbers, step_of

    strategy = mirrored(2)
    ready = numbers(BATCH, FEATURES)

    def train(is_slow: bool, clock: StepClock) -> None:
        context = multiprocessing.get_context("spawn")
        batches = context.Queue(2)
        loader = context.Process(target=load, args=(batches,), daemon=True)
        if is_slow:
            loader.start()
        step = step_of(strategy, *dense(strategy, FEATURES, 512, 512))
        for _ in range(STEPS):
            step(tf.constant(batches.get() if is_slow else ready))
            clock.step_ended()
        if is_slow:
            loader.kill()

    run_blocks(train)


if __name__ == "__main__":
    main()
