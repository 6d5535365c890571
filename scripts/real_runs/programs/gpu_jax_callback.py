"""JAX on a GPU; slow: NumPy computes weights of the rows by a callback in the compiled step."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

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

BATCH = sized(1024, 32)
rows = jnp.asarray(numbers(BATCH, WIDTH))


def ranks(losses: Any) -> Any:
    order = np.argsort(np.asarray(losses), axis=1)
    return (order.mean(axis=1) / order.shape[1]).astype(np.float32)


def train(is_slow: bool, clock: StepClock) -> None:
    def weighted(weights: Any, batch: Any) -> Any:
        share = jnp.mean(batch, axis=1)
        if is_slow:
            share = jax.pure_callback(ranks, share, batch[:, : WIDTH // 16])
        return loss_of(weights, batch * share[:, None])

    step = descent(weighted)

    state = [weights_of(WIDTH, 4)]

    def train_step(_: int) -> Any:
        state[0] = step(state[0], rows)
        return state[0]

    run_steps(clock, train_step)
