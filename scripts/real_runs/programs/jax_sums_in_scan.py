"""JAX: `shard_map` over four CPU devices, `scan` over 32 small batches; slow: each of them averages its gradients over the devices."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from scripts.real_runs.step_clock import STEPS, StepClock

DEVICES, PARTS, BATCH, WIDTH, LAYERS = 4, 32, 8, 192, 2

jax.config.update("jax_num_cpu_devices", DEVICES)
mesh = Mesh(np.array(jax.devices()), ("data",))
rng = np.random.default_rng(3)


def energy(weights: Any, rows: Any) -> Any:
    hidden = rows
    for weight in weights:
        hidden = jax.nn.gelu(hidden @ weight)
    return jnp.mean(jnp.square(hidden - rows))


def mean_over_devices(gradients: Any) -> Any:
    return jax.tree.map(lambda gradient: jax.lax.pmean(gradient, "data"), gradients)


def accumulated(weights: Any, parts: Any, is_slow: bool) -> Any:
    def add(total: Any, rows: Any) -> Any:
        gradients = jax.grad(energy)(weights, rows)
        if is_slow:
            gradients = mean_over_devices(gradients)
        return jax.tree.map(jnp.add, total, gradients), None

    total, _ = jax.lax.scan(add, jax.tree.map(jnp.zeros_like, weights), parts)
    return total if is_slow else mean_over_devices(total)


def train_step(weights: Any, parts: Any, is_slow: bool) -> Any:
    total = accumulated(weights, parts, is_slow)
    return jax.tree.map(lambda weight, sums: weight - 1e-3 * sums / PARTS, weights, total)


def train(is_slow: bool, clock: StepClock) -> None:
    by_row = PartitionSpec(None, "data")
    mapped = jax.shard_map(
        partial(train_step, is_slow=is_slow),
        mesh=mesh,
        in_specs=(PartitionSpec(), by_row),
        out_specs=PartitionSpec(),
        check_vma=False,
    )
    step = jax.jit(mapped, donate_argnums=0)
    start = (rng.standard_normal([WIDTH, WIDTH]) / 30).astype(np.float32)
    weights = jax.device_put([start] * LAYERS, NamedSharding(mesh, PartitionSpec()))
    rows = rng.standard_normal([PARTS, DEVICES * BATCH, WIDTH]).astype(np.float32)
    parts = jax.device_put(rows, NamedSharding(mesh, by_row))
    for number in range(STEPS):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            weights = jax.block_until_ready(step(weights, parts))
        clock.step_ended()
