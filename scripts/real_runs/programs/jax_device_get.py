"""JAX: `pmap` over two CPU devices; slow: all weights are fetched after each step, and NumPy orders them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scripts.real_runs.step_clock import STEPS, StepClock

DEVICES, BATCH, FEATURES = 2, 96, 448

jax.config.update("jax_num_cpu_devices", DEVICES)
rng = np.random.default_rng(1)
rows = rng.standard_normal([DEVICES, BATCH, FEATURES]).astype(np.float32)


def loss_of(weights: Any, batch: Any) -> Any:
    outputs = batch
    for weight in weights:
        outputs = jnp.tanh(outputs @ weight)
    return jnp.mean(jnp.square(outputs - batch))


def update(weights: Any, batch: Any) -> Any:
    gradients = jax.lax.pmean(jax.grad(loss_of)(weights, batch), "devices")
    return [weight - 1e-3 * gradient for weight, gradient in zip(weights, gradients, strict=True)]


def largest(weights: Any) -> Any:
    fetched = [np.sort(np.abs(value), axis=None)[-10:] for value in jax.device_get(weights)]
    return np.stack(fetched).mean(axis=1)


def train(is_slow: bool, clock: StepClock) -> None:
    step = jax.pmap(update, axis_name="devices")
    weight = rng.standard_normal([DEVICES, FEATURES, FEATURES]).astype(np.float32) / 30
    weights = [weight, weight, weight]
    for number in range(STEPS):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            weights = jax.block_until_ready(step(weights, rows))
            if is_slow:
                largest([value[0] for value in weights])
        clock.step_ended()
