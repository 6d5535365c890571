"""JAX on a GPU; slow: a second compiled function computes the loss again after each update, to log it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from scripts.real_runs.jax_training import (
    WIDTH,
    descent,
    loss_of,
    numbers,
    run_steps,
    sized,
    weights_of,
)
from scripts.real_runs.step_clock import StepClock

rows = jnp.asarray(numbers(sized(1024, 32), WIDTH))


def train(is_slow: bool, clock: StepClock) -> None:
    step, logged_loss = descent(loss_of), jax.jit(loss_of)
    state, history = [weights_of(WIDTH, 4)], []

    def train_step(_: int) -> Any:
        state[0] = step(state[0], rows)
        if is_slow:
            history.append(logged_loss(state[0], rows))
        return history[-1] if is_slow else state[0]

    run_steps(clock, train_step)
