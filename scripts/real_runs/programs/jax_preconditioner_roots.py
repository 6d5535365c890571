"""JAX: gradients are conditioned by roots of their covariances; slow: the roots are taken in each step, not in each twenty-fourth."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, WIDTH, LAYERS, APART = 16384, 48, 3, 24

rng = np.random.default_rng(61)


def loss_of(weights: Any, rows: Any) -> Any:
    hidden = rows
    for weight in weights:
        hidden = hidden + jnp.tanh(hidden @ weight)
    return jnp.mean(jnp.square(hidden - jnp.roll(rows, 1, axis=1)))


def fourth_root(covariance: Any) -> Any:
    """The inverse fourth root."""
    values, vectors = jnp.linalg.eigh(covariance + 1e-6 * jnp.eye(len(covariance)))
    return (vectors * jnp.maximum(values, 1e-6) ** -0.25) @ vectors.T


def roots_of(covariances: Any) -> Any:
    return jax.tree.map(fourth_root, covariances)


def update(state: Any, rows: Any, is_slow: bool) -> Any:
    weights, covariances, roots, count = state
    loss, slopes = jax.value_and_grad(loss_of)(weights, rows)
    covariances = [
        (0.95 * left + slope @ slope.T, 0.95 * right + slope.T @ slope)
        for (left, right), slope in zip(covariances, slopes, strict=True)
    ]
    every = 1 if is_slow else APART
    roots = jax.lax.cond(count % every == 0, roots_of, lambda _: roots, covariances)
    weights = [
        weight - 1e-3 * left @ slope @ right
        for weight, slope, (left, right) in zip(weights, slopes, roots, strict=True)
    ]
    return (weights, covariances, roots, count + 1), loss


def train(is_slow: bool, clock: StepClock) -> None:
    step = jax.jit(update, static_argnums=2, donate_argnums=0)
    weights = [
        jnp.asarray(rng.standard_normal([WIDTH, WIDTH]) / 30, jnp.float32) for _ in range(LAYERS)
    ]

    def pairs(value: float) -> Any:
        return [(value * jnp.eye(WIDTH), value * jnp.eye(WIDTH)) for _ in range(LAYERS)]

    state = (weights, pairs(0.0), pairs(1.0), jnp.int32(0))
    rows = jnp.asarray(rng.standard_normal([BATCH, WIDTH], np.float32))
    for number in range(STEPS):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            state, loss = step(state, rows, is_slow)
            jax.block_until_ready(loss)
        clock.step_ended()
