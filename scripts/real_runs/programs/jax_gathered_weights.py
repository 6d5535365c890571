"""JAX: each of two devices keeps half of the weights, and gradients of 8 small batches are summed; slow: the weights are gathered, and gradients scattered, for each small batch."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from scripts.real_runs.step_clock import STEPS, StepClock, run_blocks

DEVICES, LAYERS, PARTS, ROWS, WIDTH = 2, 4, 8, 64, 512

jax.config.update("jax_num_cpu_devices", DEVICES)
mesh = Mesh(np.array(jax.devices()), ("data",))
rng = np.random.default_rng(101)


def gathered(shards: Any) -> Any:
    return [jax.lax.all_gather(shard, "data", tiled=True) for shard in shards]


def loss_of(weights: Any, rows: Any) -> Any:
    hidden = rows
    for weight in weights:
        hidden = jax.nn.gelu(hidden @ weight)
    return jnp.mean(jnp.square(hidden - rows))


def summed(slopes_of: Any, weights: Any, parts: Any) -> Any:
    """The sum of the gradients of all small batches."""

    def add(sums: Any, rows: Any) -> Any:
        return jax.tree.map(jnp.add, sums, slopes_of(weights, rows)), None

    return jax.lax.scan(add, jax.tree.map(jnp.zeros_like, weights), parts)[0]


def update(shards: Any, parts: Any, *, is_slow: bool) -> Any:
    parts = parts[0]
    if is_slow:
        slopes_of = jax.grad(lambda shards, rows: loss_of(gathered(shards), rows))
        slopes = summed(slopes_of, shards, parts)
    else:
        whole = summed(jax.grad(loss_of), gathered(shards), parts)
        slopes = [jax.lax.psum_scatter(slope, "data", tiled=True) for slope in whole]
    return [shard - 1e-3 * slope for shard, slope in zip(shards, slopes, strict=True)]


def train(is_slow: bool, clock: StepClock) -> None:
    by_device = PartitionSpec("data")
    mapped = jax.shard_map(
        lambda shards, parts: update(shards, parts, is_slow=is_slow),
        mesh=mesh,
        in_specs=(by_device, by_device),
        out_specs=by_device,
        check_vma=False,
    )
    # As on two real devices, none of them computes on the cores of the other.
    options = {"xla_cpu_multi_thread_eigen": False}
    step = jax.jit(mapped, donate_argnums=0, compiler_options=options)
    sharding = NamedSharding(mesh, by_device)
    start = (rng.standard_normal([LAYERS, WIDTH, WIDTH]) / 23).astype(np.float32)
    shards = jax.device_put(list(start), sharding)
    batches = rng.standard_normal([4, DEVICES, PARTS, ROWS, WIDTH]).astype(np.float32)
    parts = [jax.device_put(batch, sharding) for batch in batches]
    for number in range(STEPS):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            shards = step(shards, parts[number % len(parts)])
            jax.block_until_ready(shards)
        clock.step_ended()


if __name__ == "__main__":
    run_blocks(train)
