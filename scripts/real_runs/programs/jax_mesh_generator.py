"""JAX: `jit` over a mesh of four CPU devices; slow: a generator makes each batch in Python."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from scripts.real_runs.step_clock import STEPS, StepClock

DEVICES, BATCH, FEATURES = 4, 256, 384

jax.config.update("jax_num_cpu_devices", DEVICES)
mesh = Mesh(np.array(jax.devices()), ("data",))
by_row = NamedSharding(mesh, PartitionSpec("data"))
everywhere = NamedSharding(mesh, PartitionSpec())


def made() -> Any:
    rows = [[(row * place) % 97 / 97 for place in range(FEATURES)] for row in range(BATCH)]
    return np.asarray(rows, np.float32)


def batches(is_slow: bool) -> Iterator[Any]:
    ready = made()
    while True:
        yield jax.device_put(made() if is_slow else ready, by_row)


def made_on_devices() -> Any:
    rows = jnp.outer(jnp.arange(BATCH), jnp.arange(FEATURES)) % 97
    return rows / jnp.float32(97)


def loss_of(weight: Any, batch: Any) -> Any:
    outputs = jnp.tanh(jnp.tanh(jnp.tanh(batch @ weight) @ weight) @ weight)
    return jnp.mean(jnp.square(outputs - batch))


def update(weight: Any, batch: Any) -> Any:
    return weight - 1e-3 * jax.grad(loss_of)(weight, batch)


def train(is_slow: bool, clock: StepClock) -> None:
    start = np.random.default_rng(1).standard_normal([FEATURES, FEATURES]).astype(np.float32) / 30
    weight = jax.device_put(start, everywhere)
    source = batches(is_slow)
    if clock.is_advised:
        source = iter(jax.jit(made_on_devices, out_shardings=by_row), None)
    step = jax.jit(update)
    for number in range(STEPS):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            weight = jax.block_until_ready(step(weight, next(source)))
        clock.step_ended()
