"""JAX on a GPU whose memory is mostly free; slow: the moments of Adam are moved to the host between steps, to save memory."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from scripts.real_runs.jax_training import (
    WIDTH,
    adam,
    loss_of,
    numbers,
    run_steps,
    sized,
    weights_of,
)
from scripts.real_runs.step_clock import StepClock

rows = jnp.asarray(numbers(sized(16_384, 32), WIDTH))
device = jax.devices()[0]
ON_HOST = jax.sharding.SingleDeviceSharding(device, memory_kind="pinned_host")
ON_DEVICE = jax.sharding.SingleDeviceSharding(device, memory_kind="device")


def step_once(weights: Any, moments: Any, batch: Any) -> Any:
    loss, gradients = jax.value_and_grad(loss_of)(weights, batch)
    weights, *moments = adam((weights, *moments), gradients)
    return weights, moments, loss


step = jax.jit(step_once, donate_argnums=(0, 1))


def train(is_slow: bool, clock: StepClock) -> None:
    weights = weights_of(WIDTH, 3)
    moments = [[jnp.zeros_like(weight) for weight in weights] for _ in range(2)]
    state: list[Any] = [weights, jax.device_put(moments, ON_HOST) if is_slow else moments]

    def train_step(_: int) -> Any:
        weights, moments = state
        if is_slow:
            moments = jax.device_put(moments, ON_DEVICE)
        weights, moments, loss = step(weights, moments, rows)
        state[:] = weights, jax.device_put(moments, ON_HOST) if is_slow else moments
        return loss

    run_steps(clock, train_step)
