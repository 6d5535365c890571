"""JAX: `pmap` over four CPU devices; slow: NumPy augments each batch before the call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scripts.real_runs.step_clock import STEPS, StepClock

DEVICES, BATCH, FEATURES = 4, 64, 512

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


def augmented() -> Any:
    noise = rng.standard_normal(rows.shape)
    parts = [np.sort(rows + 0.1 * place * noise, axis=2) for place in range(6)]
    return np.median(parts, axis=0).astype(np.float32)


def in_thread(make: Callable[[], Any]) -> Iterator[Any]:
    """What `make` returns, made while the item before it is used."""
    with ThreadPoolExecutor(1) as pool:
        following = pool.submit(make)
        while True:
            item, following = following.result(), pool.submit(make)
            yield item


def train(is_slow: bool, clock: StepClock) -> None:
    ahead = in_thread(augmented)
    step = jax.pmap(update, axis_name="devices")
    weight = rng.standard_normal([DEVICES, FEATURES, FEATURES]).astype(np.float32) / 30
    weights = [weight, weight, weight]
    for number in range(STEPS):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            weights = step(
                weights, (next(ahead) if clock.is_advised else augmented()) if is_slow else rows
            )
            jax.block_until_ready(weights)
        clock.step_ended()
