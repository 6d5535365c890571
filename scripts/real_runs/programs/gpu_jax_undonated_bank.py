"""JAX on a GPU, outputs kept in a large bank; slow: the bank is not donated, so that each step copies all of it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from scripts.real_runs.jax_training import numbers, run_steps, sized, weights_of
from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, FEATURES, BANK = sized(4096, 32), sized(2048, 64), sized(1_200_000, 4096)
rows = jnp.asarray(numbers(BATCH, FEATURES))


def loss_of(weights: Any, others: Any, batch: Any) -> Any:
    outputs = batch
    for weight in weights:
        outputs = jnp.tanh(outputs @ weight)
    return jnp.mean(jnp.square(outputs - batch)) + jnp.mean(outputs @ others.T), outputs


def step_once(weights: Any, bank: Any, batch: Any) -> Any:
    gradient_of = jax.value_and_grad(loss_of, has_aux=True)
    (loss, outputs), gradients = gradient_of(weights, bank[:BATCH], batch)
    return [w - 1e-3 * g for w, g in zip(weights, gradients, strict=True)], outputs, loss


step = jax.jit(step_once)


def stored(bank: Any, outputs: Any, start: Any) -> Any:
    return jax.lax.dynamic_update_slice(bank, outputs, (start, 0))


def train(is_slow: bool, clock: StepClock) -> None:
    store = jax.jit(stored, donate_argnums=() if is_slow else 0)
    state: list[Any] = [weights_of(FEATURES, 6), jnp.zeros([BANK, FEATURES])]
    starts = [jnp.int32(number * BATCH) for number in range(STEPS)]

    def train_step(number: int) -> Any:
        state[0], outputs, loss = step(*state, rows)
        state[1] = store(state[1], outputs, starts[number])
        return loss

    run_steps(clock, train_step)
