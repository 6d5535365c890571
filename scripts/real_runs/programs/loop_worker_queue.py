"""A loop on two replicas whose generator yields what worker processes put into a queue; slow: one worker, which loads slowly."""

from __future__ import annotations

import multiprocessing
import queue
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np

BATCH, FEATURES, SECONDS = 128, 256, 0.012


def load(batches: Any, is_over: Any) -> None:
    """What a worker does: it waits for a server, and hands over what came."""
    rows = np.random.default_rng(1).standard_normal([BATCH, FEATURES]).astype(np.float32)
    while not is_over.is_set():
        time.sleep(SECONDS)
        batches.put(rows)


def main() -> None:
    import tensorflow as tf

    from scripts.real_runs.step_clock import STEPS, StepClock, run_blocks
    from scripts.real_runs.training import dense, mirrored, step_of

    strategy = mirrored(2)

    def train(is_slow: bool, clock: StepClock) -> None:
        context = multiprocessing.get_context("spawn")
        batches, is_over = context.Queue(8), context.Event()
        count = 1 if is_slow and not clock.is_advised else 6
        workers = [
            context.Process(target=load, args=(batches, is_over), daemon=True) for _ in range(count)
        ]
        for worker in workers:
            worker.start()
        # All are there before the first step.
        for _ in workers:
            batches.get()

        def made() -> Iterator[Any]:
            while (rows := batches.get()) is not None:
                yield rows

        signature = tf.TensorSpec([BATCH, FEATURES], tf.float32)
        dataset = tf.data.Dataset.from_generator(made, output_signature=signature).prefetch(2)
        source = iter(strategy.distribute_datasets_from_function(lambda _: dataset))
        step = step_of(strategy, *dense(strategy, FEATURES, 384, 384))
        for _ in range(STEPS):
            step(next(source))
            clock.step_ended()
        is_over.set()
        while any(worker.is_alive() for worker in workers):
            with suppress(queue.Empty):
                batches.get(timeout=0.01)
        # The generator ends.
        batches.put(None)

    run_blocks(train)


if __name__ == "__main__":
    main()
