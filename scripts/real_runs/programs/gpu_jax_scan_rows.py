"""JAX on a GPU; slow: a recurrence that does not need its earlier state goes row by row, hundreds of small kernels."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from scripts.real_runs.jax_training import descent, numbers, run_steps, sized, weights_of
from scripts.real_runs.step_clock import StepClock

LENGTH, BATCH, FEATURES = sized(256, 16), sized(128, 8), sized(1024, 32)
rows = jnp.asarray(numbers(LENGTH, BATCH, FEATURES))


def hidden(weights: Any, batch: Any) -> Any:
    outputs = batch
    for weight in weights:
        outputs = jnp.tanh(outputs @ weight)
    return outputs


def at_once(weights: Any, batch: Any) -> Any:
    return jnp.mean(jnp.square(hidden(weights, batch)))


def row_by_row(weights: Any, batch: Any) -> Any:
    _, outputs = jax.lax.scan(lambda carry, row: (carry, hidden(weights, row)), 0, batch)
    return jnp.mean(jnp.square(outputs))


def train(is_slow: bool, clock: StepClock) -> None:
    loss_of = row_by_row if is_slow else at_once

    step = descent(loss_of)

    state = [weights_of(FEATURES, 4)]

    def train_step(_: int) -> Any:
        state[0] = step(state[0], rows)
        return state[0]

    run_steps(clock, train_step)
