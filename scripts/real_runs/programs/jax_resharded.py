"""JAX: `shard_map` over four CPU devices; slow: the batch comes by columns, and each step lays it out by rows."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from scripts.real_runs.step_clock import STEPS, StepClock, run_blocks

DEVICES, BATCH, FEATURES, USED = 4, 2048, 2048, 256

jax.config.update("jax_num_cpu_devices", DEVICES)
mesh = Mesh(np.array(jax.devices()), ("data",))
rng = np.random.default_rng(1)
rows = rng.standard_normal([BATCH, FEATURES]).astype(np.float32)


def loss_of(weight: Any, batch: Any) -> Any:
    used = batch[:, :USED]
    return jnp.mean(jnp.square(jnp.tanh(jnp.tanh(used @ weight) @ weight) - used))


def update(weight: Any, batch: Any) -> Any:
    gradient = jax.lax.pmean(jax.grad(loss_of)(weight, batch), "data")
    return weight - 1e-3 * gradient


def train(is_slow: bool, clock: StepClock) -> None:
    specs = PartitionSpec(), PartitionSpec("data")
    mapped = jax.shard_map(update, mesh=mesh, in_specs=specs, out_specs=PartitionSpec())
    step = jax.jit(mapped)
    columns = PartitionSpec(None, "data") if is_slow else PartitionSpec("data")
    batch = jax.device_put(rows, NamedSharding(mesh, columns))
    start = rng.standard_normal([USED, USED]).astype(np.float32) / 16
    weight = jax.device_put(start, NamedSharding(mesh, PartitionSpec()))
    for number in range(STEPS):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            weight = jax.block_until_ready(step(weight, batch))
        clock.step_ended()


if __name__ == "__main__":
    run_blocks(train)
