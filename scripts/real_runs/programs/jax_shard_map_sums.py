"""JAX: `shard_map` over four CPU devices; slow: each of 120 small gradients is summed by a collective of its own."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from scripts.real_runs.step_clock import STEPS, StepClock

DEVICES, BATCH, FEATURES, SCALES = 4, 64, 384, 120

jax.config.update("jax_num_cpu_devices", DEVICES)
mesh = Mesh(np.array(jax.devices()), ("data",))
rng = np.random.default_rng(1)
rows = rng.standard_normal([DEVICES * BATCH, FEATURES]).astype(np.float32)


def loss_of(weights: Any, batch: Any) -> Any:
    matrix, scales = weights
    outputs = jnp.tanh(jnp.tanh(batch @ matrix) @ matrix) * jnp.tanh(jnp.stack(scales)).mean()
    return jnp.mean(jnp.square(outputs - batch))


def one_by_one(scales: Any) -> Any:
    # Each sum waits for the one before, as those of layers do.
    sums, before = [], 0.0
    for scale in scales:
        before = jax.lax.pmean(scale + 0 * before, "data")
        sums.append(before)
    return sums


def together(scales: Any) -> Any:
    return list(jax.lax.pmean(jnp.stack(scales), "data"))


def train(is_slow: bool, clock: StepClock) -> None:
    def update(weights: Any, batch: Any) -> Any:
        matrix, scales = jax.grad(loss_of)(weights, batch)
        sums = (one_by_one if is_slow else together)(scales)
        gradients = jax.lax.pmean(matrix, "data"), sums
        return jax.tree.map(lambda weight, gradient: weight - 1e-3 * gradient, weights, gradients)

    specs = PartitionSpec(), PartitionSpec("data")
    mapped = jax.shard_map(
        update, mesh=mesh, in_specs=specs, out_specs=PartitionSpec(), check_vma=False
    )
    step = jax.jit(mapped)
    matrix = rng.standard_normal([FEATURES, FEATURES]).astype(np.float32) / 30
    weights: Any = (matrix, [np.float32(1)] * SCALES)
    for number in range(STEPS):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            weights = jax.block_until_ready(step(weights, rows))
        clock.step_ended()
