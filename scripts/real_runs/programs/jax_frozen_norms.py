"""JAX: the last blocks of a pretrained network are tuned over a mesh; slow: the norm that clips gradients takes those of the frozen blocks, too."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from scripts.real_runs.step_clock import STEPS, StepClock

DEVICES, BATCH, WIDTH, CLASSES, BLOCKS, TUNED = 4, 512, 320, 20, 7, 2

jax.config.update("jax_num_cpu_devices", DEVICES)
mesh = Mesh(np.array(jax.devices()), ("batch",))
by_row = NamedSharding(mesh, PartitionSpec("batch"))
everywhere = NamedSharding(mesh, PartitionSpec())
rng = np.random.default_rng(47)


def layer(inputs: int, outputs: int) -> dict[str, Any]:
    kernel = rng.standard_normal([inputs, outputs]) / np.sqrt(inputs)
    return {"kernel": kernel.astype(np.float32), "bias": np.zeros(outputs, np.float32)}


def pretrained() -> dict[str, Any]:
    blocks = {f"block_{place}": layer(WIDTH, WIDTH) for place in range(BLOCKS)}
    return {**blocks, "head": layer(WIDTH, CLASSES)}


def is_tuned(name: str) -> bool:
    return name == "head" or int(name.removeprefix("block_")) >= BLOCKS - TUNED


def logits_of(params: Any, rows: Any) -> Any:
    for place in range(BLOCKS):
        part = params[f"block_{place}"]
        rows = rows + jax.nn.relu(rows @ part["kernel"] + part["bias"])
        rows = rows / jnp.sqrt(jnp.mean(jnp.square(rows), axis=1, keepdims=True) + 1e-6)
    return rows @ params["head"]["kernel"] + params["head"]["bias"]


def loss_of(params: Any, rows: Any, labels: Any) -> Any:
    scores = jax.nn.log_softmax(logits_of(params, rows))
    return -jnp.mean(jnp.take_along_axis(scores, labels[:, None], axis=1))


def clipped(slopes: Any, limit: float = 1.0) -> Any:
    norm = jnp.sqrt(sum(jnp.sum(jnp.square(slope)) for slope in jax.tree.leaves(slopes)))
    return jax.tree.map(lambda slope: slope * jnp.minimum(1.0, limit / norm), slopes)


def masked(slopes: Any) -> Any:
    """Slopes of what is tuned, and zeros for the rest."""
    return {
        name: part if is_tuned(name) else jax.tree.map(jnp.zeros_like, part)
        for name, part in slopes.items()
    }


def train(is_slow: bool, clock: StepClock) -> None:
    def update(params: Any, rows: Any, labels: Any) -> Any:
        loss, slopes = jax.value_and_grad(loss_of)(params, rows, labels)
        changes = masked(clipped(slopes)) if is_slow else clipped(masked(slopes))
        return jax.tree.map(lambda value, change: value - 1e-2 * change, params, changes), loss

    step = jax.jit(update, donate_argnums=0)
    params = jax.device_put(pretrained(), everywhere)
    rows = jax.device_put(rng.standard_normal([BATCH, WIDTH]).astype(np.float32), by_row)
    labels = jax.device_put(rng.integers(0, CLASSES, BATCH, np.int32), by_row)
    for number in range(STEPS):
        with jax.profiler.StepTraceAnnotation("tune", step_num=number):
            params, loss = step(params, rows, labels)
            jax.block_until_ready((params, loss))
        clock.step_ended()
