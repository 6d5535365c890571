"""Holds what programs of JAX on a GPU share: a model of wide layers, its compiled step, and a loop over it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scripts.real_runs.step_clock import STEPS, StepClock

IS_GPU = jax.default_backend() == "gpu"


def sized(on_gpu: int, elsewhere: int) -> int:
    """A size that keeps a GPU busy for milliseconds, or a small one to try the program without a GPU."""
    return on_gpu if IS_GPU else elsewhere


WIDTH = sized(4096, 128)


def numbers(*shape: int, seed: int = 1) -> Any:
    """Random float32 numbers on the host, always the same."""
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def weights_of(width: int, layers: int, dtype: str = "float32") -> Any:
    """Square weights on the device."""
    weight = numbers(width, width) / np.sqrt(width)
    return [jnp.asarray(weight, dtype) for _ in range(layers)]


def loss_of(weights: Any, rows: Any) -> Any:
    """How far layers of `tanh` are from giving back their input."""
    outputs = rows
    for weight in weights:
        outputs = jnp.tanh(outputs @ weight)
    return jnp.mean(jnp.square(outputs - rows))


def update(weights: Any, rows: Any) -> Any:
    """New weights, and the loss."""
    loss, gradients = jax.value_and_grad(loss_of)(weights, rows)
    return [w - 1e-3 * g for w, g in zip(weights, gradients, strict=True)], loss


def run_steps(clock: StepClock, step: Callable[[int], Any]) -> None:
    """Call `step` with the number of each step, and wait for what the step before returned."""
    before = None
    for number in range(STEPS):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            result = step(number)
            jax.block_until_ready(before)
        before = result
        clock.step_ended()
