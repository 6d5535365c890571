"""JAX: `jit` over a mesh of two CPU devices; slow: the weights are float64."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from scripts.real_runs.step_clock import STEPS, StepClock

DEVICES, BATCH, FEATURES = 2, 256, 384

jax.config.update("jax_num_cpu_devices", DEVICES)
jax.config.update("jax_enable_x64", True)
mesh = Mesh(np.array(jax.devices()), ("data",))
by_row = NamedSharding(mesh, PartitionSpec("data"))
everywhere = NamedSharding(mesh, PartitionSpec())
rng = np.random.default_rng(1)
rows = jax.device_put(rng.standard_normal([BATCH, FEATURES]).astype(np.float32), by_row)


def loss_of(weight: Any, batch: Any) -> Any:
    outputs = batch
    for _ in range(4):
        outputs = jnp.maximum(outputs @ weight, 0)
    return jnp.mean(jnp.square(outputs - batch))


def update(weight: Any, batch: Any) -> Any:
    return weight - 1e-3 * jax.grad(loss_of)(weight, batch)


def train(is_slow: bool, clock: StepClock) -> None:
    kind = np.float64 if is_slow else np.float32
    start = (rng.standard_normal([FEATURES, FEATURES]) / 30).astype(kind)
    weight, step = jax.device_put(start, everywhere), jax.jit(update)
    for number in range(STEPS):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            weight = jax.block_until_ready(step(weight, rows))
        clock.step_ended()
