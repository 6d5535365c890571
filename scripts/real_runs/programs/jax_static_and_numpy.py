"""JAX: `jit` over a mesh; slow twice: a static argument that changes compiles anew, and NumPy shuffles before each call."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from scripts.real_runs.step_clock import STEPS, StepClock

DEVICES, BATCH, FEATURES = 2, 256, 320

jax.config.update("jax_num_cpu_devices", DEVICES)
mesh = Mesh(np.array(jax.devices()), ("data",))
by_row = NamedSharding(mesh, PartitionSpec("data"))
everywhere = NamedSharding(mesh, PartitionSpec())
rng = np.random.default_rng(1)
rows = rng.standard_normal([BATCH, FEATURES]).astype(np.float32)


def loss_of(weight: Any, batch: Any) -> Any:
    return jnp.mean(jnp.square(jnp.tanh(jnp.tanh(batch @ weight) @ weight) - batch))


def update(weight: Any, batch: Any, rate: float) -> Any:
    return weight - rate * jax.grad(loss_of)(weight, batch)


def shuffled() -> Any:
    return rng.permuted(np.tile(rows, (3, 1)), axis=0)[:BATCH].copy()


runs = itertools.count()


def train(is_slow: bool, clock: StepClock) -> None:
    # What another run has compiled would be found again.
    run = next(runs)
    step = jax.jit(update, static_argnums=2) if is_slow else jax.jit(update)
    weight = jax.device_put(rng.standard_normal([FEATURES, FEATURES]) / 30, everywhere)
    weight = weight.astype(jnp.float32)
    for number in range(STEPS):
        rate = 1e-3 * (1 + (number + 2) // 4 + run * STEPS)
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            batch = jax.device_put(shuffled() if is_slow else rows, by_row)
            weight = jax.block_until_ready(step(weight, batch, rate))
        clock.step_ended()
