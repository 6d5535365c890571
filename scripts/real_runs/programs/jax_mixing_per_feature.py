"""Samples are mixed in pairs; slow: the step draws a share by the beta distribution for each feature, not for each sample."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp

from scripts.real_runs.jax_training import numbers, run_steps
from scripts.real_runs.step_clock import StepClock

BATCH, FEATURES, WIDTH, LAYERS, ALPHA = 256, 48, 768, 3, 0.4
rows = [jnp.asarray(numbers(BATCH, FEATURES, seed=seed)) for seed in range(4)]


def loss_of(weights: Any, batch: Any) -> Any:
    outputs = batch
    for weight in weights:
        outputs = jnp.tanh(outputs @ weight)
    return jnp.mean(jnp.square(outputs - batch))


def train(is_slow: bool, clock: StepClock) -> None:
    sizes = [FEATURES, *[WIDTH] * LAYERS, FEATURES]
    state = {
        "weights": [jnp.asarray(numbers(a, b) / a**0.5) for a, b in itertools.pairwise(sizes)],
        "key": jax.random.key(1),
    }

    def mixed(key: Any, batch: Any) -> Any:
        shape = batch.shape if is_slow else (batch.shape[0], 1)
        share = jax.random.beta(key, ALPHA, ALPHA, shape)
        share = jnp.broadcast_to(share[:, :1], batch.shape) if not is_slow else share
        return share * batch + (1.0 - share) * jnp.roll(batch, 1, axis=0)

    @jax.jit  # type: ignore[untyped-decorator]  # JAX has no types here
    def train_step(state: Any, batch: Any) -> Any:
        key, draw = jax.random.split(state["key"])
        loss, gradients = jax.value_and_grad(loss_of)(state["weights"], mixed(draw, batch))
        weights = [w - 1e-2 * g for w, g in zip(state["weights"], gradients, strict=True)]
        return {"weights": weights, "key": key}, loss

    def step(number: int) -> Any:
        nonlocal state
        state, loss = train_step(state, rows[number % 4])
        return loss

    run_steps(clock, step)
