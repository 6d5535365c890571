"""JAX: each of four CPU devices asks for its rows of the batch; slow: each time the whole batch is prepared, and its rows are taken from it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from scripts.real_runs.step_clock import STEPS, StepClock

DEVICES, BATCH, SIDE, FILTERS = 4, 64, 32, 16

jax.config.update("jax_num_cpu_devices", DEVICES)
mesh = Mesh(np.array(jax.devices()), ("data",))
by_image = NamedSharding(mesh, PartitionSpec("data"))
rng = np.random.default_rng(11)
pictures = rng.integers(0, 255, [1024, SIDE, SIDE, 3], np.uint8)


class Pictures:
    """A source of batches: which pictures a batch has, and their preparation."""

    def __init__(self, is_slow: bool) -> None:
        self.is_slow = is_slow
        self.order = np.random.default_rng(13).permutation(len(pictures))

    def prepared(self, numbers: Any) -> Any:
        raw = pictures[numbers].astype(np.float32) / 255
        centred = raw - raw.mean(axis=(1, 2), keepdims=True)
        scaled = centred / (raw.std(axis=(1, 2), keepdims=True) + 1e-3)
        return np.where(numbers[:, None, None, None] % 2 == 0, scaled, scaled[:, :, ::-1])

    def batch(self, number: int) -> Any:
        start = number * BATCH % len(self.order)
        numbers = self.order[start : start + BATCH]

        def rows(place: Any) -> Any:
            if self.is_slow:
                return self.prepared(numbers)[place]
            return self.prepared(numbers[place[0]])

        return jax.make_array_from_callback((BATCH, SIDE, SIDE, 3), by_image, rows)


def convolution(images: Any, kernel: Any) -> Any:
    sizes = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(images, kernel, (1, 1), "SAME", dimension_numbers=sizes)


def loss_of(kernels: Any, images: Any) -> Any:
    first, second = kernels
    maps = jax.nn.relu(convolution(images, first))
    return jnp.mean(jnp.square(convolution(maps, second) - images))


def update(kernels: Any, images: Any) -> Any:
    gradients = jax.grad(loss_of)(kernels, images)
    return jax.tree.map(lambda kernel, slope: kernel - 1e-3 * slope, kernels, gradients)


def train(is_slow: bool, clock: StepClock) -> None:
    source = Pictures(is_slow)
    shapes = [3, 3, 3, FILTERS], [3, 3, FILTERS, 3]
    values = [rng.standard_normal(shape).astype(np.float32) / 10 for shape in shapes]
    kernels = jax.device_put(values, NamedSharding(mesh, PartitionSpec()))
    step, number = jax.jit(update), 0
    while number < STEPS:
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            kernels = step(kernels, source.batch(number))
            jax.block_until_ready(kernels)
        number += 1
        clock.step_ended()
