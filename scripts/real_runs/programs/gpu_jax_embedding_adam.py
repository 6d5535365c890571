"""JAX on a GPU; slow: Adam updates a whole embedding table, where plain descent changes the rows of the batch."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scripts.real_runs.jax_training import adam, run_steps, sized, weights_of
from scripts.real_runs.jax_training import loss_of as loss_of_rows
from scripts.real_runs.step_clock import StepClock

VOCABULARY, FEATURES, TOKENS = sized(1_000_000, 4096), sized(1024, 64), sized(8192, 32)
tokens = jnp.asarray(np.random.default_rng(1).integers(0, VOCABULARY, TOKENS).astype(np.int32))


def loss_of(table: Any, weights: Any) -> Any:
    return loss_of_rows(weights, table[tokens])


def moved(weights: Any, gradients: Any) -> Any:
    return [w - 1e-3 * g for w, g in zip(weights, gradients, strict=True)]


def rows_step(table: Any, weights: Any) -> Any:
    gradients_of = jax.value_and_grad(loss_of_rows, (0, 1))
    loss, (of_weights, of_rows) = gradients_of(weights, table[tokens])
    return table.at[tokens].add(-1e-3 * of_rows), moved(weights, of_weights), loss


def gradients_once(table: Any, weights: Any) -> Any:
    loss, (of_table, of_weights) = jax.value_and_grad(loss_of, (0, 1))(table, weights)
    return of_table, moved(weights, of_weights), loss


def train(is_slow: bool, clock: StepClock) -> None:
    by_rows, adam_step = jax.jit(rows_step, donate_argnums=(0, 1)), jax.jit(adam, donate_argnums=0)
    gradients_of = jax.jit(gradients_once, donate_argnums=1)
    shape, weights = [VOCABULARY, FEATURES], [weights_of(FEATURES, 12)]
    states = [([jnp.full(shape, 0.01)], *([jnp.zeros(shape)] for _ in range(2 if is_slow else 0)))]

    def train_step(_: int) -> Any:
        table = states[0][0][0]
        if is_slow:
            gradient, weights[0], loss = gradients_of(table, weights[0])
            states[0] = adam_step(states[0], [gradient])
        else:
            table, weights[0], loss = by_rows(table, weights[0])
            states[0] = ([table],)
        return loss

    run_steps(clock, train_step)
