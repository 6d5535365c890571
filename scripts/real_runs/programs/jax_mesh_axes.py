"""JAX: a network whose rows and columns are split over a mesh of 2 x 2 CPU devices; slow: a constraint on hidden rows names the wrong axis of the mesh."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from scripts.real_runs.step_clock import STEPS, StepClock

DEVICES, BATCH, WIDTH, HIDDEN, BLOCKS = 4, 1024, 64, 1024, 4

jax.config.update("jax_num_cpu_devices", DEVICES)
mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("data", "model"))
rng = np.random.default_rng(59)


def sharding(*axes: str | None) -> NamedSharding:
    return NamedSharding(mesh, PartitionSpec(*axes))


def initial() -> list[dict[str, Any]]:
    """Blocks whose first matrix is split by columns, and the second by rows."""
    up = (rng.standard_normal([WIDTH, HIDDEN]) / 16).astype(np.float32)
    down = (rng.standard_normal([HIDDEN, WIDTH]) / 64).astype(np.float32)
    return [
        {
            "up": jax.device_put(up, sharding(None, "model")),
            "down": jax.device_put(down, sharding("model", None)),
            "scale": jax.device_put(np.ones(WIDTH, np.float32), sharding()),
        }
        for _ in range(BLOCKS)
    ]


def train(is_slow: bool, clock: StepClock) -> None:
    # "The axes of the mesh were ("model", "data") in the old configuration."
    hidden_axes = ("model", "data") if is_slow else ("data", "model")

    def forward(blocks: Any, rows: Any) -> Any:
        for block in blocks:
            scale = block["scale"] / jnp.sqrt(jnp.mean(jnp.square(rows), 1, keepdims=True) + 1e-6)
            hidden = jax.nn.gelu((rows * scale) @ block["up"])
            hidden = jax.lax.with_sharding_constraint(hidden, sharding(*hidden_axes))
            rows = rows + hidden @ block["down"]
            rows = jax.lax.with_sharding_constraint(rows, sharding("data", None))
        return rows

    def loss_of(blocks: Any, rows: Any, labels: Any) -> Any:
        return jnp.mean(jnp.square(forward(blocks, rows) - labels))

    def update(blocks: Any, rows: Any, labels: Any) -> Any:
        loss, slopes = jax.value_and_grad(loss_of)(blocks, rows, labels)
        return jax.tree.map(lambda value, slope: value - 1e-2 * slope, blocks, slopes), loss

    step, blocks = jax.jit(update, donate_argnums=0), initial()
    data = rng.standard_normal([4, 2, BATCH, WIDTH]).astype(np.float32)
    batches = [jax.device_put(list(pair), sharding("data")) for pair in data]
    for number in range(STEPS):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            blocks, loss = step(blocks, *batches[number % len(batches)])
            jax.block_until_ready((blocks, loss))
        clock.step_ended()
