"""JAX on a GPU; slow: the size of each layer's gradient is read one by one after each step."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from scripts.real_runs.jax_training import loss_of, numbers, run_steps, sized, weights_of
from scripts.real_runs.step_clock import StepClock

BATCH, FEATURES, LAYERS = sized(512, 32), sized(2048, 64), 24
rows = jnp.asarray(numbers(BATCH, FEATURES))


def step_of_once(weights: Any, batch: Any) -> Any:
    gradients = jax.grad(loss_of)(weights, batch)
    sizes = [jnp.linalg.norm(gradient) for gradient in gradients]
    return [w - 1e-3 * g for w, g in zip(weights, gradients, strict=True)], sizes


step_of = jax.jit(step_of_once)


def train(is_slow: bool, clock: StepClock) -> None:
    state = [weights_of(FEATURES, LAYERS)]

    def train_step(_: int) -> Any:
        state[0], sizes = step_of(state[0], rows)
        return [float(size) for size in sizes] if is_slow else sizes

    run_steps(clock, train_step)
