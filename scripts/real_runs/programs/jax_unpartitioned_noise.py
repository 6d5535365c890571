"""JAX: four devices clean noisy rows; slow: random numbers are made as in old versions, which do not divide them, so that each device makes those of all."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from scripts.real_runs.step_clock import STEPS, StepClock

DEVICES, BATCH, WIDTH, LAYERS = 4, 192, 128, 6

jax.config.update("jax_num_cpu_devices", DEVICES)
mesh = Mesh(np.array(jax.devices()), ("data",))
whole, parts = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in ((), ("data",)))
rng = np.random.default_rng(31)


def loss_of(weights: Any, rows: Any, key: Any) -> Any:
    keys = jax.random.split(key, LAYERS + 1)
    hidden = rows + 0.3 * jax.random.normal(keys[-1], rows.shape)
    for matrix, one in zip(weights, keys[:-1], strict=True):
        kept = jax.random.bernoulli(one, 0.9, hidden.shape)
        hidden = hidden + jnp.tanh(jnp.where(kept, hidden, 0.0) @ matrix)
    return jnp.mean(jnp.square(hidden - rows))


def train(is_slow: bool, clock: StepClock) -> None:
    def update(weights: Any, rows: Any, key: Any) -> Any:
        key, now = jax.random.split(key)
        loss, slopes = jax.value_and_grad(loss_of)(weights, rows, now)
        weights = jax.tree.map(lambda value, slope: value - 1e-3 * slope, weights, slopes)
        return weights, key, loss

    jax.config.update("jax_threefry_partitionable", not is_slow)
    step = jax.jit(update, in_shardings=(whole, parts, whole), out_shardings=whole)
    matrices = [rng.standard_normal([WIDTH, WIDTH], np.float32) / WIDTH for _ in range(LAYERS)]
    weights = jax.device_put(matrices, whole)
    key = jax.device_put(jax.random.key(7), whole)
    batches = jax.device_put(
        [rng.standard_normal([DEVICES * BATCH, WIDTH], np.float32) for _ in range(6)], parts
    )
    for number in range(STEPS):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            weights, key, loss = step(weights, batches[number % 6], key)
            jax.block_until_ready(loss)
        clock.step_ended()
