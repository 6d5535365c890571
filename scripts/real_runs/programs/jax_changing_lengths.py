"""JAX: `jit` over a mesh of four CPU devices; slow: every third batch has a length that was not seen before."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from scripts.real_runs.step_clock import STEPS, StepClock

DEVICES, BATCH, FEATURES = 4, 256, 384

jax.config.update("jax_num_cpu_devices", DEVICES)
rng = np.random.default_rng(1)
rows = rng.standard_normal([BATCH * 2, FEATURES]).astype(np.float32)


def loss_of(weights: Any, batch: Any) -> Any:
    outputs = batch
    for weight in weights:
        outputs = jnp.tanh(outputs @ weight)
    return jnp.mean(jnp.square(outputs - batch))


def train(is_slow: bool, clock: StepClock) -> None:
    def update(weights: Any, batch: Any) -> Any:
        # A function of each run's own: jit keeps what it compiled for a function.
        gradients = jax.grad(loss_of)(weights, batch)
        return [w - 1e-3 * gradient for w, gradient in zip(weights, gradients, strict=True)]

    mesh = Mesh(np.array(jax.devices()), ("data",))
    by_row, everywhere = (NamedSharding(mesh, PartitionSpec(*names)) for names in (("data",), ()))
    weight = rng.standard_normal([FEATURES, FEATURES]).astype(np.float32) / 30
    weights = jax.device_put([weight] * 3, everywhere)
    step = jax.jit(update)
    for number in range(STEPS):
        length = BATCH - 4 * number if is_slow and number % 3 == 0 else BATCH
        batch = jax.device_put(rows[:length], by_row)
        weights = jax.block_until_ready(step(weights, batch))
        clock.step_ended()
