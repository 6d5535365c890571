"""JAX on a GPU; slow: products ask for the highest precision of float32, which its tensor units do not have."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from scripts.real_runs.jax_training import numbers, run_steps, sized, update, weights_of
from scripts.real_runs.step_clock import StepClock

BATCH, FEATURES = sized(2048, 32), sized(2048, 64)
rows = jnp.asarray(numbers(BATCH, FEATURES))


def train(is_slow: bool, clock: StepClock) -> None:
    with jax.default_matmul_precision("highest" if is_slow else "tensorfloat32"):
        step, state = jax.jit(update), [weights_of(FEATURES, 6)]

        def train_step(_: int) -> Any:
            state[0], loss = step(state[0], rows)
            return loss

        run_steps(clock, train_step)
