"""JAX: an ensemble of heads over one convolutional network cleans pictures; slow twice: `vmap` over the kernels of the heads makes grouped convolutions, and every twelfth step picks pixels by a mask outside of `jit`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scripts.real_runs.step_clock import STEPS, StepClock

MEMBERS, BATCH, SIDE, FILTERS, PERIOD = 3, 32, 32, 32, 12

rng = np.random.default_rng(67)


def convolution(images: Any, kernel: Any) -> Any:
    sizes = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(images, kernel, (1, 1), "SAME", dimension_numbers=sizes)


def trunk_of(kernels: Any, images: Any) -> Any:
    """What all members share: maps of half the size."""
    maps = jax.nn.relu(convolution(images, kernels["in"]))
    maps = maps + jax.nn.relu(convolution(maps, kernels["middle"]))
    return halved(maps)


def halved(images: Any) -> Any:
    return jax.lax.reduce_window(images, 0.0, jax.lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID") / 4


def head_of(kernels: Any, maps: Any) -> Any:
    return convolution(jax.nn.relu(convolution(maps, kernels["mix"])), kernels["out"])


def by_vmap(heads: Any, maps: Any) -> Any:
    return jax.vmap(head_of, in_axes=(0, None))(heads, maps)


def one_by_one(heads: Any, maps: Any) -> Any:
    members = [jax.tree.map(lambda kernel, i=place: kernel[i], heads) for place in range(MEMBERS)]
    return jnp.stack([head_of(member, maps) for member in members])


def update_by(outputs_of: Callable[[Any, Any], Any]) -> Any:
    """A step that gives new kernels, and how wrong each member was at each pixel."""

    def update(kernels: Any, noisy: Any, clean: Any) -> Any:
        def loss_of(kernels: Any) -> Any:
            outputs = outputs_of(kernels["heads"], trunk_of(kernels, noisy))
            errors = jnp.mean(jnp.square(outputs - halved(clean)), axis=-1)
            return jnp.mean(errors), errors

        slopes, errors = jax.grad(loss_of, has_aux=True)(kernels)
        kernels = jax.tree.map(lambda value, slope: value - 1e-2 * slope, kernels, slopes)
        return kernels, errors

    return jax.jit(update)


def hard_mean(errors: Any) -> Any:
    """Mean error of the pixels that are harder than most."""
    return jnp.mean(errors[errors > jnp.mean(errors) + jnp.std(errors)])


def hard_mean_by_weights(errors: Any) -> Any:
    is_hard = errors > jnp.mean(errors) + jnp.std(errors)
    return jnp.sum(jnp.where(is_hard, errors, 0)) / jnp.sum(is_hard)


def initial() -> dict[str, Any]:
    def kernel(*shape: int) -> Any:
        return jnp.asarray(rng.standard_normal(shape) / 12, jnp.float32)

    heads = {"mix": kernel(MEMBERS, 3, 3, FILTERS, 4), "out": kernel(MEMBERS, 3, 3, 4, 3)}
    return {
        "in": kernel(3, 3, 3, FILTERS),
        "middle": kernel(3, 3, FILTERS, FILTERS),
        "heads": heads,
    }


def train(is_slow: bool, clock: StepClock) -> None:
    kernels, hard = initial(), []
    update = update_by(by_vmap if is_slow else one_by_one)
    mean_of = hard_mean if is_slow else jax.jit(hard_mean_by_weights)
    pictures = rng.random([8, BATCH, SIDE, SIDE, 3], np.float32)
    noisy = pictures + rng.standard_normal(pictures.shape, np.float32) / 4
    for number in range(STEPS):
        place = number % len(pictures)
        with jax.profiler.StepTraceAnnotation("clean", step_num=number):
            kernels, errors = update(kernels, noisy[place], pictures[place])
            if number % PERIOD == 0:
                hard.append(float(mean_of(errors)))
            jax.block_until_ready(kernels)
        clock.step_ended()
