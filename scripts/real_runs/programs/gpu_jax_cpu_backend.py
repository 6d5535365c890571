"""JAX on a GPU; slow: the function that smooths a batch is compiled for the CPU device, and its result is copied to the GPU."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scripts.real_runs.jax_training import numbers, run_steps, sized, update, weights_of
from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, FEATURES, HIDDEN = sized(8192, 16), sized(768, 32), sized(2048, 64)
signals = numbers(BATCH, FEATURES)
places = np.arange(FEATURES, dtype=np.float32)
distances = np.abs(places[:, None] - places)


def smoothed(rows: Any, width: Any) -> Any:
    kernel = jnp.exp(-distances / width)
    return jnp.tanh(rows @ (kernel / kernel.sum(axis=0)))


def train(is_slow: bool, clock: StepClock) -> None:
    gpu = jax.devices()[0]
    device = jax.devices("cpu")[0] if is_slow else gpu
    smooth, step = jax.jit(smoothed), jax.jit(update, donate_argnums=0)
    rows = jax.device_put(signals, device)
    widths = [jax.device_put(np.float32(1 + number % 4), device) for number in range(STEPS)]
    ends = numbers(FEATURES, HIDDEN) / np.sqrt(FEATURES), numbers(HIDDEN, FEATURES)
    first, last = (jnp.asarray(end) for end in ends)
    state = [[first, *weights_of(HIDDEN, 10), last / np.sqrt(HIDDEN)]]

    def train_step(number: int) -> Any:
        batch = jax.device_put(smooth(rows, widths[number]), gpu)
        state[0], loss = step(state[0], batch)
        return loss

    run_steps(clock, train_step)
