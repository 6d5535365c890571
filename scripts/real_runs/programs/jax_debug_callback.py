"""JAX: `jit` on one CPU device; slow: `jax.debug.callback` inside the step keeps a histogram of each layer."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, FEATURES = 192, 512

rng = np.random.default_rng(1)
rows = rng.standard_normal([BATCH, FEATURES]).astype(np.float32)
counts: list[Any] = []


def keep(outputs: Any) -> None:
    counts.append(np.histogram(outputs, bins=64)[0])


def train(is_slow: bool, clock: StepClock) -> None:
    def loss_of(weights: Any, batch: Any) -> Any:
        outputs = batch
        for weight in weights:
            outputs = jnp.tanh(outputs @ weight)
            if is_slow:
                jax.debug.callback(keep, outputs)
        return jnp.mean(jnp.square(outputs - batch))

    def update(weights: Any, batch: Any) -> Any:
        gradients = jax.grad(loss_of)(weights, batch)
        return [w - 1e-3 * gradient for w, gradient in zip(weights, gradients, strict=True)]

    step = jax.jit(update)
    weight = rng.standard_normal([FEATURES, FEATURES]).astype(np.float32) / 30
    weights = [weight, weight, weight]
    for _ in range(STEPS):
        weights = jax.block_until_ready(step(weights, rows))
        clock.step_ended()
