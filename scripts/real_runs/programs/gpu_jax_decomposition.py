"""JAX on a GPU; slow: the step decomposes a covariance each time."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from scripts.real_runs.jax_training import loss_of, numbers, run_steps, sized, weights_of
from scripts.real_runs.step_clock import StepClock

BATCH, FEATURES = sized(4096, 32), sized(2048, 64)
rows = jnp.asarray(numbers(BATCH, FEATURES))


def train(is_slow: bool, clock: StepClock) -> None:
    def step_once(weights: Any, batch: Any) -> Any:
        gradients = jax.grad(loss_of)(weights, batch)
        scale = jnp.ones(1)
        if is_slow:
            part = batch[:, : FEATURES // 8]
            scale = jnp.linalg.eigvalsh(part.T @ part / BATCH)[-1]
        return [w - 1e-3 * g / scale for w, g in zip(weights, gradients, strict=True)]

    step = jax.jit(step_once)

    state = [weights_of(FEATURES, 6)]

    def train_step(_: int) -> Any:
        state[0] = step(state[0], rows)
        return state[0]

    run_steps(clock, train_step)
