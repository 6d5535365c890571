"""JAX on a GPU; slow: Adam and its state are on the host, in NumPy, so that gradients go there and weights come back."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scripts.real_runs.jax_training import adam, loss_of, numbers, run_steps, sized, weights_of
from scripts.real_runs.step_clock import StepClock

BATCH, FEATURES = sized(98_304, 32), sized(768, 64)
rows = jnp.asarray(numbers(BATCH, FEATURES))


def adam_on_host(state: Any, gradients: Any) -> Any:
    weights, means, squares = state
    for weight, mean, square, gradient in zip(
        weights, means, squares, jax.device_get(gradients), strict=True
    ):
        mean += 0.1 * (gradient - mean)
        square += 0.01 * (gradient * gradient - square)
        weight -= 1e-3 * mean / (np.sqrt(square) + 1e-8)
    return state


def train(is_slow: bool, clock: StepClock) -> None:
    gradients_of, adam_step = jax.jit(jax.grad(loss_of)), jax.jit(adam)
    weights = weights_of(FEATURES, 2)
    if is_slow:
        weights = [np.array(weight) for weight in weights]
    numpy = np if is_slow else jnp
    means, squares = ([numpy.zeros_like(weight) for weight in weights] for _ in range(2))
    state: list[Any] = [(weights, means, squares)]

    def train_step(_: int) -> Any:
        on_device = jax.device_put(state[0][0])
        gradients = gradients_of(on_device, rows)
        state[0] = (adam_on_host if is_slow else adam_step)(state[0], gradients)
        return gradients

    run_steps(clock, train_step)
