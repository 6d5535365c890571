"""JAX: rows learn to keep apart; slow twice: `cond` below `vmap` sorts rows that need no change, and weights are hashed after each step."""

from __future__ import annotations

import hashlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, FEATURES, LAYERS = 96, 512, 8

rng = np.random.default_rng(29)


def scaled(row: Any) -> Any:
    """A row with outliers over its median, which makes them harmless."""
    return jnp.clip(row / jnp.median(jnp.abs(row)), -3, 3)


def unchanged(row: Any) -> Any:
    return row


def row_by_row(rows: Any) -> Any:
    def change(row: Any) -> Any:
        return jax.lax.cond(jnp.max(jnp.abs(row)) > 100, scaled, unchanged, row)

    return jax.vmap(change)(rows)


def at_once(rows: Any) -> Any:
    return jax.lax.cond(jnp.max(jnp.abs(rows)) > 100, jax.vmap(scaled), unchanged, rows)


def loss_of(weights: Any, rows: Any) -> Any:
    hidden = rows
    for weight in weights:
        hidden = jnp.tanh(hidden @ weight)
    hidden = hidden / jnp.linalg.norm(hidden, axis=1, keepdims=True)
    return jax.nn.logsumexp(hidden @ hidden.T * 5) - jnp.mean(hidden @ jnp.mean(rows, axis=0))


def digest(weights: Any) -> str:
    """What every worker must have in common after the step."""
    summary = hashlib.sha256()
    for weight in jax.tree.leaves(weights):
        summary.update(np.asarray(weight).tobytes())
    return summary.hexdigest()


def train(is_slow: bool, clock: StepClock) -> None:
    prepared = row_by_row if is_slow else at_once

    def update(weights: Any, rows: Any) -> Any:
        slopes = jax.grad(loss_of)(weights, prepared(rows))
        return [weight - 1e-3 * slope for weight, slope in zip(weights, slopes, strict=True)]

    step = jax.jit(update)
    start = (rng.standard_normal([LAYERS, FEATURES, FEATURES]) / 20).astype(np.float32)
    weights, digests = list(start), []
    data = rng.standard_normal([8, BATCH, FEATURES]).astype(np.float32)
    for number in range(STEPS):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            weights = jax.block_until_ready(step(weights, data[number % len(data)]))
            if is_slow or number % 500 == 0:
                digests.append(digest(weights))
        clock.step_ended()
