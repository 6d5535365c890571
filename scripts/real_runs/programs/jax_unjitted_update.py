"""JAX: gradients by `jit`; slow: Adam updates the weights op by op outside of it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scripts.real_runs.step_clock import STEPS, StepClock, run_blocks

BATCH, FEATURES, LAYERS = 64, 160, 16

rng = np.random.default_rng(1)
rows = jnp.asarray(rng.standard_normal([BATCH, FEATURES]).astype(np.float32))


def loss_of(weights: Any, batch: Any) -> Any:
    outputs = batch
    for weight in weights:
        outputs = jnp.tanh(outputs @ weight)
    return jnp.mean(jnp.square(outputs - batch))


def adam(state: Any, gradients: Any) -> Any:
    weights, means, squares = state
    means = [0.9 * mean + 0.1 * g for mean, g in zip(means, gradients, strict=True)]
    squares = [0.99 * square + 0.01 * g * g for square, g in zip(squares, gradients, strict=True)]
    weights = [
        weight - 1e-3 * mean / (jnp.sqrt(square) + 1e-8)
        for weight, mean, square in zip(weights, means, squares, strict=True)
    ]
    return weights, means, squares


def train(is_slow: bool, clock: StepClock) -> None:
    gradients_of, adam_step = jax.jit(jax.grad(loss_of)), adam if is_slow else jax.jit(adam)
    weights = [jnp.asarray(rng.standard_normal([FEATURES] * 2) / 12) for _ in range(LAYERS)]
    zeros = [jnp.zeros_like(weight) for weight in weights]
    state: Any = (weights, zeros, zeros)
    for number in range(STEPS):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            state = jax.block_until_ready(adam_step(state, gradients_of(state[0], rows)))
        clock.step_ended()


if __name__ == "__main__":
    run_blocks(train)
