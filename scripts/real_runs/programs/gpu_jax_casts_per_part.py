"""JAX on a GPU, gradients of small batches summed for an update; slow: each small batch converts the weights to bfloat16 again."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from scripts.real_runs.jax_training import (
    WIDTH,
    loss_of,
    numbers,
    run_steps,
    sized,
    weights_of,
)
from scripts.real_runs.step_clock import StepClock

PARTS, BATCH = sized(8, 2), sized(256, 8)
rows = jnp.asarray(numbers(BATCH, WIDTH), "bfloat16")


def converted(weights: Any) -> Any:
    return [weight.astype("bfloat16") for weight in weights]


def summed(sums: Any, weights: Any, batch: Any) -> Any:
    loss, gradients = jax.value_and_grad(loss_of)(weights, batch)
    return [total + g.astype("float32") for total, g in zip(sums, gradients, strict=True)], loss


def converted_and_summed(sums: Any, weights: Any, batch: Any) -> Any:
    return summed(sums, converted(weights), batch)


def updated(weights: Any, sums: Any) -> Any:
    weights = [weight - 1e-3 * total for weight, total in zip(weights, sums, strict=True)]
    return weights, [jnp.zeros_like(total) for total in sums]


def train(is_slow: bool, clock: StepClock) -> None:
    add = jax.jit(converted_and_summed if is_slow else summed, donate_argnums=0)
    convert, update = jax.jit(converted), jax.jit(updated, donate_argnums=(0, 1))
    weights = weights_of(WIDTH, 8)
    state: list[Any] = [weights, [jnp.zeros_like(weight) for weight in weights]]

    def train_step(_: int) -> Any:
        weights = state[0] if is_slow else convert(state[0])
        losses: list[Any] = []
        for _ in range(PARTS):
            state[1], loss = add(state[1], weights, rows)
            losses.append(loss)
        state[:] = update(*state)
        return losses

    run_steps(clock, train_step)
