"""A JAX loop that checks the model after each fourth step; slow: by 16 batches instead of one."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scripts.real_runs.jax_training import numbers
from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, FEATURES, WIDTH, APART = 256, 128, 512, 4
held = numbers(16 * BATCH, FEATURES, seed=3)
table = numbers(16 * BATCH, FEATURES)


def outputs(weights: Any, rows: Any) -> Any:
    *hidden, last = weights
    for weight in hidden:
        rows = jax.nn.gelu(rows @ weight)
    return rows @ last


def loss_of(weights: Any, rows: Any) -> Any:
    return jnp.mean(jnp.square(outputs(weights, rows) - rows))


@jax.jit  # type: ignore[untyped-decorator]  # JAX has no types here
def train_step(weights: Any, rows: Any) -> Any:
    loss, gradients = jax.value_and_grad(loss_of)(weights, rows)
    return [w - 1e-2 * g for w, g in zip(weights, gradients, strict=True)], loss


@jax.jit  # type: ignore[untyped-decorator]  # JAX has no types here
def error_of(weights: Any, rows: Any) -> Any:
    return jnp.mean(jnp.abs(outputs(weights, rows) - rows))


def evaluated(weights: Any, batches: int) -> float:
    errors = [error_of(weights, held[n * BATCH : (n + 1) * BATCH]) for n in range(batches)]
    return float(np.mean(jax.device_get(errors)))


def train(is_slow: bool, clock: StepClock) -> None:
    shapes = [(FEATURES, WIDTH), (WIDTH, WIDTH), (WIDTH, FEATURES)]
    weights = [jnp.asarray(numbers(*shape)) * 0.05 for shape in shapes]
    for number in range(STEPS):
        start = number * BATCH % len(table)
        weights, loss = train_step(weights, table[start : start + BATCH])
        float(loss)
        if number % APART == APART - 1:
            evaluated(weights, 16 if is_slow else 1)
        clock.step_ended()
