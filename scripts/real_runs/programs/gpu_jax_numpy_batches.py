"""JAX on a GPU; slow: NumPy makes each batch before the call."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from scripts.real_runs.jax_training import WIDTH, numbers, run_steps, sized, update, weights_of
from scripts.real_runs.step_clock import StepClock

BATCH = sized(64, 8)
rows = numbers(BATCH, WIDTH)


def train(is_slow: bool, clock: StepClock) -> None:
    step, state = jax.jit(update), [weights_of(WIDTH, 6)]
    ready = jax.device_put(rows)

    def train_step(number: int) -> Any:
        batch = ready
        if is_slow:
            batch = np.mean([np.sin(rows * (1 + number + part)) for part in range(12)], axis=0)
        state[0], loss = step(state[0], batch)
        return loss

    run_steps(clock, train_step)
