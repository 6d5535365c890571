"""JAX on a GPU; slow: the garbage is collected by hand after each step."""

from __future__ import annotations

import gc
from typing import Any

import jax
import jax.numpy as jnp

from scripts.real_runs.jax_training import WIDTH, numbers, run_steps, sized, update, weights_of
from scripts.real_runs.step_clock import StepClock

rows = jnp.asarray(numbers(sized(2048, 32), WIDTH))


def train(is_slow: bool, clock: StepClock) -> None:
    samples = [{"path": str(number), "boxes": [number]} for number in range(60_000)]
    step, state = jax.jit(update), [weights_of(WIDTH, 4)]

    def train_step(_: int) -> Any:
        state[0], loss = step(state[0], rows)
        if is_slow:
            gc.collect()
        return loss

    run_steps(clock, train_step)
    del samples
