"""JAX on a GPU; slow: the weights are float64."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from scripts.real_runs.jax_training import numbers, run_steps, sized, update, weights_of
from scripts.real_runs.step_clock import StepClock

BATCH, FEATURES = sized(2048, 32), sized(2048, 64)


def train(is_slow: bool, clock: StepClock) -> None:
    dtype = "float64" if is_slow else "float32"
    with jax.enable_x64(is_slow):
        step, state = jax.jit(update), [weights_of(FEATURES, 6, dtype)]
        rows = jnp.asarray(numbers(BATCH, FEATURES), dtype)

        def train_step(_: int) -> Any:
            state[0], loss = step(state[0], rows)
            return loss

        run_steps(clock, train_step)
