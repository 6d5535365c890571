"""JAX: the layers of a network are split over two devices; slow: each product gathers all its outputs, where the second could take the half that is there, and sum."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from scripts.real_runs.step_clock import STEPS, StepClock

DEVICES, BATCH, WIDTH, WIDE, BLOCKS = 2, 768, 192, 768, 4

jax.config.update("jax_num_cpu_devices", DEVICES)
mesh = Mesh(np.array(jax.devices()), ("model",))
rng = np.random.default_rng(37)
COLUMNS, ROWS = PartitionSpec(None, "model"), PartitionSpec("model", None)


def gathered(part: Any) -> Any:
    return jax.lax.all_gather(part, "model", axis=1, tiled=True)


def block_of_columns(hidden: Any, first: Any, second: Any) -> Any:
    """Both products make half of their columns on each device."""
    wide = gathered(jax.nn.gelu(hidden @ first))
    return hidden + gathered(wide @ second)


def block_of_columns_and_rows(hidden: Any, first: Any, second: Any) -> Any:
    """The second product takes the columns that the first made on its device."""
    wide = jax.nn.gelu(hidden @ first)
    return hidden + jax.lax.psum(wide @ second, "model")


def train(is_slow: bool, clock: StepClock) -> None:
    block = block_of_columns if is_slow else block_of_columns_and_rows
    seconds = COLUMNS if is_slow else ROWS

    def loss_of(weights: Any, rows: Any, wanted: Any) -> Any:
        hidden = rows
        for first, second in weights:
            hidden = block(hidden, first, second)
        return jnp.mean(jnp.square(hidden - wanted))

    split = [(COLUMNS, seconds)] * BLOCKS
    whole = PartitionSpec()
    mapped = jax.shard_map(
        loss_of, mesh=mesh, in_specs=(split, whole, whole), out_specs=whole, check_vma=False
    )

    def update(weights: Any, rows: Any, wanted: Any) -> Any:
        loss, slopes = jax.value_and_grad(mapped)(weights, rows, wanted)
        return jax.tree.map(lambda w, slope: w - 1e-3 * slope, weights, slopes), loss

    step = jax.jit(update, donate_argnums=0)
    places = [tuple(NamedSharding(mesh, spec) for spec in pair) for pair in split]
    start = [
        (
            rng.standard_normal([WIDTH, WIDE], np.float32) / np.float32(16),
            rng.standard_normal([WIDE, WIDTH], np.float32) / np.float32(40),
        )
        for _ in range(BLOCKS)
    ]
    weights = jax.device_put(start, places)
    batches = [rng.standard_normal([2, BATCH, WIDTH], np.float32) for _ in range(4)]
    placed = jax.device_put(batches, NamedSharding(mesh, whole))
    pairs = [(batch[0], batch[1]) for batch in placed]
    for number in range(STEPS):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            weights, loss = step(weights, *pairs[number % 4])
            jax.block_until_ready(loss)
        clock.step_ended()
