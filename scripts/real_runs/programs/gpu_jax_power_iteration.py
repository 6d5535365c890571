"""JAX on a GPU; slow: `while_loop` iterates a small matrix to its largest singular value in each step, in tiny kernels."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from scripts.real_runs.jax_training import loss_of, numbers, run_steps, sized, weights_of
from scripts.real_runs.step_clock import StepClock

BATCH, FEATURES, SMALL, MOST = sized(4096, 32), sized(2048, 64), sized(256, 16), sized(300, 20)
rows = jnp.asarray(numbers(BATCH, FEATURES))


def largest(matrix: Any) -> Any:
    def go_on(state: Any) -> Any:
        _, change, count = state
        return (change > 1e-12) & (count < MOST)

    def iterate(state: Any) -> Any:
        vector, _, count = state
        product = matrix.T @ (matrix @ vector)
        product /= jnp.linalg.norm(product)
        return product, jnp.max(jnp.abs(product - vector)), count + 1

    first = jnp.ones(SMALL) / SMALL**0.5
    vector, _, _ = jax.lax.while_loop(go_on, iterate, (first, jnp.float32(1), 0))
    return jnp.linalg.norm(matrix @ vector)


def step_once(weights: Any, batch: Any, is_slow: bool) -> Any:
    loss, gradients = jax.value_and_grad(loss_of)(weights, batch)
    part = weights[0][:SMALL, :SMALL]
    scale = largest(part) if is_slow else jnp.linalg.norm(part)
    return [w - 1e-3 * g / scale for w, g in zip(weights, gradients, strict=True)], loss


step = jax.jit(step_once, static_argnums=2, donate_argnums=0)


def train(is_slow: bool, clock: StepClock) -> None:
    state = [weights_of(FEATURES, 8)]

    def train_step(_: int) -> Any:
        state[0], loss = step(state[0], rows, is_slow)
        return loss

    run_steps(clock, train_step)
