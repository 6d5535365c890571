"""JAX: four devices keep a fourth of each weight and go through a batch in small parts; slow: the weights are gathered for each part, not once for all of them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from scripts.real_runs.step_clock import STEPS, StepClock

DEVICES, PARTS, ROWS, WIDTH, LAYERS = 4, 12, 20, 192, 6

jax.config.update("jax_num_cpu_devices", DEVICES)
mesh = Mesh(np.array(jax.devices()), ("data",))
split, of_parts = PartitionSpec("data"), PartitionSpec(None, "data")
rng = np.random.default_rng(83)


def whole(shards: Any) -> Any:
    return [jax.lax.all_gather(shard, "data", tiled=True) for shard in shards]


def loss_of(weights: Any, rows: Any) -> Any:
    hidden = rows
    for weight in weights:
        hidden = hidden + jnp.tanh(hidden @ weight)
    return jnp.mean(jnp.square(hidden - rows[:, ::-1]))


def mean_loss(shards: Any, parts: Any, is_slow: bool) -> Any:
    """The loss of all parts, whose gradient for the shards the devices sum and divide."""

    def gathered_loss(shards: Any, rows: Any) -> Any:
        return loss_of(whole(shards), rows)

    one, weights = (gathered_loss, shards) if is_slow else (loss_of, whole(shards))

    def add(total: Any, rows: Any) -> Any:
        return total + jax.checkpoint(one)(weights, rows), None

    return jax.lax.scan(add, jnp.float32(0), parts)[0] / (PARTS * DEVICES)


def train(is_slow: bool, clock: StepClock) -> None:
    def update(shards: Any, parts: Any) -> Any:
        loss, slopes = jax.value_and_grad(mean_loss)(shards, parts, is_slow)
        shards = [shard - 1e-2 * slope for shard, slope in zip(shards, slopes, strict=True)]
        return shards, jax.lax.psum(loss, "data")

    mapped = jax.shard_map(
        update,
        mesh=mesh,
        in_specs=(split, of_parts),
        out_specs=(split, PartitionSpec()),
        check_vma=False,
    )
    step = jax.jit(mapped, donate_argnums=0)
    start = [rng.standard_normal([WIDTH, WIDTH], np.float32) / WIDTH for _ in range(LAYERS)]
    shards = jax.device_put(start, NamedSharding(mesh, split))
    batches = jax.device_put(
        [rng.standard_normal([PARTS, DEVICES * ROWS, WIDTH], np.float32) for _ in range(4)],
        NamedSharding(mesh, of_parts),
    )
    for number in range(STEPS):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            shards, loss = step(shards, batches[number % 4])
            jax.block_until_ready(loss)
        clock.step_ended()
