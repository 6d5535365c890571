"""JAX on a GPU, gradients of small batches summed for an update; slow: the loss of each small batch is read at once."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from scripts.real_runs.jax_training import loss_of, numbers, run_steps, sized, weights_of
from scripts.real_runs.step_clock import StepClock

PARTS, BATCH, FEATURES = sized(24, 4), sized(256, 8), sized(2048, 64)
batches = [jnp.asarray(numbers(BATCH, FEATURES, seed=seed)) for seed in range(PARTS)]


def summed(sums: Any, weights: Any, batch: Any) -> Any:
    loss, gradients = jax.value_and_grad(loss_of)(weights, batch)
    return [total + g for total, g in zip(sums, gradients, strict=True)], loss


def updated(weights: Any, sums: Any) -> Any:
    weights = [weight - 1e-3 * total for weight, total in zip(weights, sums, strict=True)]
    return weights, [jnp.zeros_like(total) for total in sums]


def train(is_slow: bool, clock: StepClock) -> None:
    add, update = jax.jit(summed, donate_argnums=0), jax.jit(updated, donate_argnums=(0, 1))
    weights = weights_of(FEATURES, 6)
    state: list[Any] = [weights, [jnp.zeros_like(weight) for weight in weights]]

    def train_step(_: int) -> Any:
        losses: list[Any] = []
        for batch in batches:
            state[1], loss = add(state[1], state[0], batch)
            losses.append(float(loss) if is_slow else loss)
        state[:] = update(*state)
        return losses

    run_steps(clock, train_step)
