"""JAX on a GPU, batches by a thread that copies them ahead; slow: the thread computes each batch."""

from __future__ import annotations

import queue
import threading
from typing import Any

import jax
import numpy as np

from scripts.real_runs.jax_training import WIDTH, numbers, run_steps, sized, update, weights_of
from scripts.real_runs.step_clock import STEPS, StepClock

BATCH = sized(64, 8)
rows = numbers(BATCH, WIDTH)


def train(is_slow: bool, clock: StepClock) -> None:
    batches: queue.Queue[Any] = queue.Queue(maxsize=2)

    def load() -> None:
        for number in range(STEPS):
            parts = (
                [np.sort(np.sin(rows + number), axis=1) for _ in range(4)] if is_slow else [rows]
            )
            batch = np.maximum.reduce(parts)
            batches.put(jax.device_put(batch))

    loader = threading.Thread(target=load)
    loader.start()
    step, state = jax.jit(update), [weights_of(WIDTH, 6)]

    def train_step(_: int) -> Any:
        state[0], loss = step(state[0], batches.get())
        return loss

    run_steps(clock, train_step)
    loader.join()
