"""JAX: four devices train a network of convolutions; slow: each has a part of every picture, not whole ones, so that each convolution exchanges borders."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from scripts.real_runs.step_clock import STEPS, StepClock

DEVICES, BATCH, SIDE, CHANNELS, LAYERS = 4, 16, 16, 8, 10

jax.config.update("jax_num_cpu_devices", DEVICES)
mesh = Mesh(np.array(jax.devices()), ("data",))
rng = np.random.default_rng(131)
pictures = rng.standard_normal([4, BATCH, SIDE, SIDE, CHANNELS], np.float32)


def convolved(rows: Any, kernel: Any) -> Any:
    return jax.lax.conv_general_dilated(
        rows, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def loss_of(kernels: Any, clean: Any) -> Any:
    """How well noise of the pictures is taken away."""
    noisy = clean + 0.1 * jnp.sin(100 * clean)
    hidden = noisy
    for kernel in kernels:
        hidden = hidden + jax.nn.relu(convolved(hidden, kernel))
    return jnp.mean(jnp.square(hidden - clean))


def update(kernels: Any, clean: Any) -> Any:
    loss, slopes = jax.value_and_grad(loss_of)(kernels, clean)
    kernels = [kernel - 1e-2 * slope for kernel, slope in zip(kernels, slopes, strict=True)]
    return kernels, loss


def train(is_slow: bool, clock: StepClock) -> None:
    axes = (None, "data") if is_slow else ("data",)
    split = NamedSharding(mesh, PartitionSpec(*axes))
    copies = NamedSharding(mesh, PartitionSpec())
    step = jax.jit(update, donate_argnums=0, out_shardings=(copies, copies))
    start = [
        rng.standard_normal([3, 3, CHANNELS, CHANNELS], np.float32) / 30 for _ in range(LAYERS)
    ]
    kernels = jax.device_put(start, copies)
    batches = [jax.device_put(batch, split) for batch in pictures]
    for number in range(STEPS):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            kernels, loss = step(kernels, batches[number % len(batches)])
            jax.block_until_ready(loss)
        clock.step_ended()
