"""JAX on a GPU: gradients by `jit`; slow: Adam updates the weights op by op outside of it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from scripts.real_runs.jax_training import adam, loss_of, numbers, run_steps, sized, weights_of
from scripts.real_runs.step_clock import StepClock

BATCH, FEATURES, LAYERS = sized(2048, 32), sized(2048, 64), 12
rows = jnp.asarray(numbers(BATCH, FEATURES))


def train(is_slow: bool, clock: StepClock) -> None:
    gradients_of, adam_step = jax.jit(jax.grad(loss_of)), adam if is_slow else jax.jit(adam)
    weights = weights_of(FEATURES, LAYERS)
    zeros = [jnp.zeros_like(weight) for weight in weights]
    state: list[Any] = [(weights, zeros, zeros)]

    def train_step(_: int) -> Any:
        state[0] = adam_step(state[0], gradients_of(state[0][0], rows))
        return state[0]

    run_steps(clock, train_step)
