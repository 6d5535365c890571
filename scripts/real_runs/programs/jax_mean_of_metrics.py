"""JAX: `jit` on two CPU devices; slow: 48 metrics are averaged with `jnp` outside of the compiled step, one op each."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scripts.real_runs.step_clock import STEPS, StepClock

DEVICES, BATCH, FEATURES, METRICS = 2, 128, 448, 48

jax.config.update("jax_num_cpu_devices", DEVICES)
rng = np.random.default_rng(1)
rows = rng.standard_normal([DEVICES, BATCH, FEATURES]).astype(np.float32)


def loss_of(weights: Any, batch: Any) -> Any:
    outputs = batch
    for weight in weights:
        outputs = jnp.tanh(outputs @ weight)
    return jnp.mean(jnp.square(outputs - batch)), outputs[0, :METRICS]


def update(weights: Any, batch: Any) -> Any:
    gradients, metrics = jax.grad(loss_of, has_aux=True)(weights, batch)
    gradients = jax.lax.pmean(gradients, "devices")
    return [w - 1e-3 * g for w, g in zip(weights, gradients, strict=True)], metrics


def updated(each: list[Any], metrics: Any) -> list[Any]:
    return [0.9 * old + 0.1 * metrics[index] for index, old in enumerate(each)]


def train(is_slow: bool, clock: StepClock) -> None:
    step = jax.pmap(update, axis_name="devices")
    weight = rng.standard_normal([DEVICES, FEATURES, FEATURES]).astype(np.float32) / 30
    weights: Any = [weight, weight, weight]
    averaged: Any = jax.jit(updated) if clock.is_advised else updated
    running = jnp.zeros(METRICS)
    each: list[Any] = [jnp.zeros(()) for _ in range(METRICS)]
    for _ in range(STEPS):
        weights, metrics = jax.block_until_ready(step(weights, rows))
        first = jnp.asarray(np.asarray(metrics)[0])
        if is_slow:
            each = averaged(each, first)
            jax.block_until_ready(each)
        else:
            running = jax.block_until_ready(0.9 * running + 0.1 * first)
        clock.step_ended()
