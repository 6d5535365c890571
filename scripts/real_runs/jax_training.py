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


def descent(loss: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A compiled step of plain gradient descent, of weights and a batch to new weights."""

    def step(weights: Any, batch: Any) -> Any:
        gradients = jax.grad(loss)(weights, batch)
        return [w - 1e-3 * g for w, g in zip(weights, gradients, strict=True)]

    compiled: Callable[[Any, Any], Any] = jax.jit(step)
    return compiled


def adam(state: Any, gradients: Any) -> Any:
    """New weights, means and squares of gradients, by Adam."""
    weights, means, squares = state
    means = [0.9 * mean + 0.1 * g for mean, g in zip(means, gradients, strict=True)]
    squares = [0.99 * square + 0.01 * g * g for square, g in zip(squares, gradients, strict=True)]
    weights = [
        weight - 1e-3 * mean / (jnp.sqrt(square) + 1e-8)
        for weight, mean, square in zip(weights, means, squares, strict=True)
    ]
    return weights, means, squares


def run_steps(clock: StepClock, step: Callable[[int], Any]) -> None:
    """Call `step` with the number of each step, and wait for what the step before returned."""
    before = None
    for number in range(STEPS):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            result = step(number)
            jax.block_until_ready(before)
        before = result
        clock.step_ended()
