"""Two devices take blocks of a graph; slow: the blocks lie in order of their fill, so that one device gets most of the full ones."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from scripts.real_runs.step_clock import STEPS, StepClock

jax.config.update("jax_num_cpu_devices", 2)

from scripts.real_runs.jax_training import numbers, weights_of  # noqa: E402

WIDTH, ROWS, BLOCKS, SMALL, LARGE = 128, 128, 16, 1, 15
mesh = Mesh(np.array(jax.devices()), ("data",))
split = NamedSharding(mesh, PartitionSpec("data"))
whole = NamedSharding(mesh, PartitionSpec())


def batches(is_slow: bool) -> list[Any]:
    """Batches of two device parts: the blocks, and how many of them are filled."""
    made = []
    for seed in range(4):
        counts = [LARGE, SMALL] if is_slow else [(LARGE + SMALL) // 2] * 2
        blocks = numbers(2, BLOCKS, ROWS, WIDTH, seed=seed)
        for device, count in enumerate(counts):
            blocks[device, count:] = 0.0
        made.append((blocks, np.array(counts, np.int32)))
    return made


def loss_of(weights: Any, block: Any) -> Any:
    outputs = block
    for weight in weights:
        outputs = jnp.tanh(outputs @ weight)
    return jnp.mean(jnp.square(outputs - block))


def gradients_of(weights: Any, blocks: Any, count: Any) -> Any:
    """The mean gradient of all filled blocks of all devices."""
    local = jax.tree.map(lambda weight: jax.lax.pcast(weight, "data", to="varying"), weights)

    def add(place: Any, sums: Any) -> Any:
        found = jax.grad(loss_of)(local, blocks[0, place])
        return [total + gradient for total, gradient in zip(sums, found, strict=True)]

    zeros = [jnp.zeros_like(weight) for weight in local]
    sums = jax.lax.fori_loop(0, count[0], add, zeros)
    total = jax.lax.psum(count[0], "data")
    return [jax.lax.psum(part, "data") / total for part in sums]


sharded = jax.shard_map(
    gradients_of,
    mesh=mesh,
    in_specs=(PartitionSpec(), PartitionSpec("data"), PartitionSpec("data")),
    out_specs=PartitionSpec(),
)


@jax.jit  # type: ignore[untyped-decorator]  # JAX has no types here
def train_step(weights: Any, blocks: Any, count: Any) -> Any:
    gradients = sharded(weights, blocks, count)
    return [w - 1e-2 * g for w, g in zip(weights, gradients, strict=True)]


def train(is_slow: bool, clock: StepClock) -> None:
    weights = jax.device_put(weights_of(WIDTH, 6), whole)
    fed = [jax.device_put(batch, split) for batch in batches(is_slow)]
    for number in range(STEPS):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            weights = train_step(weights, *fed[number % 4])
            jax.block_until_ready(weights)
        clock.step_ended()
