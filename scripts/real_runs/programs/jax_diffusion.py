"""JAX: a denoiser with averaged weights, noise made in the step, a loss that is read at times and snapshots in a thread: nothing slows it down."""

from __future__ import annotations

import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, SIDE, CHANNELS, APART = 16, 24, 24, 12

rng = np.random.default_rng(73)
pictures = rng.standard_normal([BATCH * 8, SIDE, SIDE, 3], np.float32)


def convolved(rows: Any, kernel: Any) -> Any:
    return jax.lax.conv_general_dilated(
        rows, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def denoised(params: Any, rows: Any, level: Any) -> Any:
    hidden = convolved(rows, params["in"]) + level[:, None, None, None] * params["level"]
    hidden = hidden + jax.nn.silu(convolved(jax.nn.silu(hidden), params["middle"]))
    return convolved(hidden, params["out"])


def loss_of(params: Any, rows: Any, key: Any) -> Any:
    of_level, of_noise = jax.random.split(key)
    level = jax.random.uniform(of_level, [BATCH])
    noise = jax.random.normal(of_noise, rows.shape)
    angle = 0.5 * jnp.pi * level[:, None, None, None]
    mixed = jnp.cos(angle) * rows + jnp.sin(angle) * noise
    return jnp.mean(jnp.square(denoised(params, mixed, level) - noise))


def update(state: Any, rows: Any) -> Any:
    params, average, key = state
    key, now = jax.random.split(key)
    loss, slopes = jax.value_and_grad(loss_of)(params, rows, now)
    params = jax.tree.map(lambda value, slope: value - 1e-2 * slope, params, slopes)
    average = jax.tree.map(lambda old, new: 0.999 * old + 0.001 * new, average, params)
    return (params, average, key), loss


def start() -> Any:
    shapes = {
        "in": (3, 3, 3, CHANNELS),
        "level": (CHANNELS,),
        "middle": (3, 3, CHANNELS, CHANNELS),
        "out": (3, 3, CHANNELS, 3),
    }
    params = {
        name: jnp.asarray(0.1 * rng.standard_normal(shape), jnp.float32)
        for name, shape in shapes.items()
    }
    return params, jax.tree.map(jnp.copy, params), jax.random.key(0)


def train(_is_slow: bool, clock: StepClock) -> None:
    step = jax.jit(update, donate_argnums=0)
    state, losses = start(), []
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(1) as pool:
        for number in range(STEPS):
            with jax.profiler.StepTraceAnnotation("train", step_num=number):
                first = number % 8 * BATCH
                state, loss = step(state, pictures[first : first + BATCH])
                losses.append(loss)
                if number % APART == APART - 1:
                    weights: dict[str, Any] = {
                        name: np.asarray(value) for name, value in state[1].items()
                    }
                    pool.submit(np.savez, Path(folder) / f"{number}.npz", **weights)
                    print(number, float(np.mean([float(one) for one in losses])))
                    losses.clear()
                elif len(losses) > 1:
                    losses[-2].block_until_ready()
            clock.step_ended()
