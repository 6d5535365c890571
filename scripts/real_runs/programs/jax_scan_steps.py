"""JAX: each call trains on six batches by `lax.scan`, over a mesh of two CPU devices: nothing slows it down."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from scripts.real_runs.step_clock import STEPS, StepClock

DEVICES, PARTS, BATCH, FEATURES = 2, 6, 256, 320

jax.config.update("jax_num_cpu_devices", DEVICES)
mesh = Mesh(np.array(jax.devices()), ("data",))
by_row = NamedSharding(mesh, PartitionSpec(None, "data"))
everywhere = NamedSharding(mesh, PartitionSpec())
rng = np.random.default_rng(1)


def loss_of(weight: Any, batch: Any) -> Any:
    return jnp.mean(jnp.square(jnp.tanh(jnp.tanh(batch @ weight) @ weight) - batch))


def advance(weight: Any, batch: Any) -> Any:
    loss, gradient = jax.value_and_grad(loss_of)(weight, batch)
    return weight - 1e-3 * gradient, loss


def train(_is_slow: bool, clock: StepClock) -> None:
    rows = rng.standard_normal([PARTS, BATCH, FEATURES]).astype(np.float32)
    batches = jax.device_put(rows, by_row)
    start = rng.standard_normal([FEATURES, FEATURES]).astype(np.float32) / 30
    weight = jax.device_put(start, everywhere)
    step = jax.jit(lambda weight, batches: jax.lax.scan(advance, weight, batches))
    for number in range(STEPS):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            weight, _ = jax.block_until_ready(step(weight, batches))
        clock.step_ended()
