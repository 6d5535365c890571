"""JAX: `jit` over a mesh of four CPU devices; slow: a frozen table is a NumPy array, which each call copies to all devices."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from scripts.real_runs.step_clock import STEPS, StepClock

DEVICES, BATCH, ROWS, WIDTH = 4, 256, 16384, 256

jax.config.update("jax_num_cpu_devices", DEVICES)
mesh = Mesh(np.array(jax.devices()), ("data",))
rng = np.random.default_rng(31)


saved = b"vectors\n" + rng.standard_normal([ROWS, WIDTH]).astype(np.float32).tobytes()
"""The file of the table: a header and its numbers, which do not begin where JAX could use them without a copy."""


def read(file: bytes) -> Any:
    return np.frombuffer(file, np.float32, offset=file.index(b"\n") + 1).reshape(ROWS, WIDTH)


class Model(NamedTuple):
    """What trains, and the table of vectors that does not."""

    layers: Any
    vectors: Any


def loss_of(layers: Any, vectors: Any, numbers: Any) -> Any:
    known = vectors[numbers]
    hidden = known
    for weight in layers:
        hidden = jnp.tanh(hidden @ weight)
    return jnp.mean(jnp.square(hidden - known))


def update(model: Model, numbers: Any) -> Any:
    gradients = jax.grad(loss_of)(model.layers, model.vectors, numbers)
    return [weight - 1e-3 * slope for weight, slope in zip(model.layers, gradients, strict=True)]


def train(is_slow: bool, clock: StepClock) -> None:
    by_row = NamedSharding(mesh, PartitionSpec("data"))
    everywhere = NamedSharding(mesh, PartitionSpec())
    vectors = read(saved)
    start = (rng.standard_normal([WIDTH, WIDTH]) / 20).astype(np.float32)
    layers = jax.device_put([start] * 6, everywhere)
    model = Model(layers, vectors if is_slow else jax.device_put(vectors, everywhere))
    step = jax.jit(update)
    for number in range(STEPS):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            numbers = jax.device_put(rng.integers(0, ROWS, [BATCH * 4]), by_row)
            model = model._replace(layers=step(model, numbers))
            jax.block_until_ready(model.layers)
        clock.step_ended()
