"""JAX: four devices learn to take errors of sensors away; slow twice: NumPy decomposes the covariance of the errors whenever it draws some, and checks of every op of the step were left in."""

from __future__ import annotations

import os
from typing import Any

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import checkify
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from scripts.real_runs.step_clock import STEPS, StepClock

DEVICES, BATCH, SENSORS, WIDTH, LAYERS = 4, 768, 144, 256, 2

jax.config.update("jax_num_cpu_devices", DEVICES)
mesh = Mesh(np.array(jax.devices()), ("data",))
copies, rows = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in ((), ("data",)))
rng = np.random.default_rng(97)
mixed = rng.standard_normal([SENSORS, SENSORS])
covariance = 0.01 * (mixed @ mixed.T / SENSORS + np.eye(SENSORS))
factor = np.linalg.cholesky(covariance).astype(np.float32)
readings = rng.standard_normal([BATCH * 4, SENSORS], np.float32)


def batch_of(number: int, is_slow: bool) -> Any:
    """Readings with errors, which depend on each other, and without."""
    clean = readings[number % 4 * BATCH :][:BATCH]
    if is_slow:
        errors: Any = rng.multivariate_normal(np.zeros(SENSORS), covariance, BATCH)
    else:
        errors = rng.standard_normal([BATCH, SENSORS], np.float32) @ factor.T
    return jax.device_put((clean + errors.astype(np.float32), clean), rows)


def loss_of(weights: Any, noisy: Any, clean: Any) -> Any:
    hidden = noisy @ weights["in"]
    for kernel in weights["kernels"]:
        scale = jnp.sqrt(jnp.mean(jnp.square(hidden), axis=-1, keepdims=True) + 1e-6)
        hidden = hidden + jax.nn.silu(hidden / scale @ kernel)
    return jnp.mean(jnp.square(hidden @ weights["out"] - clean))


def update(weights: Any, noisy: Any, clean: Any) -> Any:
    loss, slopes = jax.value_and_grad(loss_of)(weights, noisy, clean)
    return jax.tree.map(lambda weight, slope: weight - 1e-2 * slope, weights, slopes), loss


def train(is_slow: bool, clock: StepClock) -> None:
    errors = checkify.float_checks if is_slow else checkify.user_checks
    step = jax.jit(checkify.checkify(update, errors=errors))
    start = {
        "in": rng.standard_normal([SENSORS, WIDTH], np.float32) / SENSORS,
        "kernels": [rng.standard_normal([WIDTH, WIDTH], np.float32) / 20 for _ in range(LAYERS)],
        "out": np.zeros([WIDTH, SENSORS], np.float32),
    }
    weights = jax.device_put(start, copies)
    for number in range(STEPS):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            error, (weights, loss) = step(weights, *batch_of(number, is_slow))
            error.throw()
            jax.block_until_ready(loss)
        clock.step_ended()
