"""JAX on one device: a field of colours is learnt from photographs; slow twice: the rays of all pixels are made for each batch, which
takes a few of them, and `lax.map` asks the network about one ray at a time, as for a small memory.
"""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scripts.real_runs.step_clock import STEPS, StepClock

SIDE, FOCAL, RAYS, SAMPLES, CHUNK, WIDTH, DEGREES = 400, 360.0, 256, 24, 1, 96, 6

rng = np.random.default_rng(31)
photographs = rng.random([6, SIDE, SIDE, 3], np.float32)
poses = np.concatenate(
    [np.linalg.qr(rng.standard_normal([6, 3, 3]))[0], rng.standard_normal([6, 3, 1])], axis=2
).astype(np.float32)


def rays_of(pose: Any, across: Any, down: Any) -> tuple[Any, Any]:
    """Where the rays of pixels start, and which way they go."""
    directions = np.stack(
        [(across - SIDE / 2) / FOCAL, -(down - SIDE / 2) / FOCAL, -np.ones_like(across)], axis=-1
    )
    directions = np.sum(directions[..., None, :] * pose[:3, :3], axis=-1)
    return np.broadcast_to(pose[:3, 3], directions.shape), directions


def batch_of_all(number: int) -> Any:
    """Rays of all pixels, of which a few are taken."""
    across, down = np.meshgrid(np.arange(SIDE, dtype=np.float32), np.arange(SIDE, dtype=np.float32))
    starts, directions = rays_of(poses[number], across, down)
    chosen = rng.integers(0, SIDE * SIDE, RAYS)
    fields = starts, directions, photographs[number]
    return tuple(field.reshape(-1, 3)[chosen].astype(np.float32) for field in fields)


def batch_of_few(number: int) -> Any:
    """Rays of a few pixels."""
    down, across = rng.integers(0, SIDE, [2, RAYS])
    starts, directions = rays_of(poses[number], across.astype(np.float32), down.astype(np.float32))
    colours = photographs[number, down, across]
    return starts.astype(np.float32), directions.astype(np.float32), colours


def field(weights: Any, points: Any) -> Any:
    """Colours and densities of points."""
    scaled = points[..., None, :] * (2.0 ** jnp.arange(DEGREES))[:, None]
    waves = jnp.concatenate([jnp.sin(scaled), jnp.cos(scaled)], axis=-1)
    hidden = waves.reshape(*points.shape[:-1], -1)
    for weight in weights[:-1]:
        hidden = jax.nn.relu(hidden @ weight)
    return hidden @ weights[-1]


def train(is_slow: bool, clock: StepClock) -> None:
    batch_of = batch_of_all if is_slow else batch_of_few

    def answers(weights: Any, points: Any) -> Any:
        if not is_slow:
            return field(weights, points)
        chunks = points.reshape(-1, CHUNK, SAMPLES, 3)
        return jax.lax.map(lambda chunk: field(weights, chunk), chunks).reshape(RAYS, SAMPLES, 4)

    def loss_of(weights: Any, starts: Any, directions: Any, colours: Any) -> Any:
        depths = jnp.linspace(2.0, 6.0, SAMPLES)
        points = starts[:, None] + directions[:, None] * depths[:, None]
        raw = answers(weights, points)
        opaque = 1 - jnp.exp(-jax.nn.relu(raw[..., 3]) * (depths[1] - depths[0]))
        clear = jnp.cumsum(jnp.log(1 - opaque + 1e-6), axis=1)
        shares = opaque * jnp.exp(clear - jnp.log(1 - opaque + 1e-6))
        seen = jnp.sum(shares[..., None] * jax.nn.sigmoid(raw[..., :3]), axis=1)
        return jnp.mean(jnp.square(seen - colours))

    def update(state: Any, *batch: Any) -> tuple[Any, Any]:
        weights, means, squares = state
        loss, slopes = jax.value_and_grad(loss_of)(weights, *batch)
        means = [0.9 * m + 0.1 * s for m, s in zip(means, slopes, strict=True)]
        squares = [0.99 * q + 0.01 * s * s for q, s in zip(squares, slopes, strict=True)]
        weights = [
            w - 5e-4 * m / (jnp.sqrt(q) + 1e-8)
            for w, m, q in zip(weights, means, squares, strict=True)
        ]
        return (weights, means, squares), loss

    step = jax.jit(update, donate_argnums=0)
    sizes = [6 * DEGREES, WIDTH, WIDTH, WIDTH, 4]
    weights = [
        jnp.asarray(rng.standard_normal(shape, np.float32) * (2 / shape[0]) ** 0.5)
        for shape in itertools.pairwise(sizes)
    ]
    state: Any = weights, [0 * w for w in weights], [0 * w for w in weights]
    for number in range(STEPS):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            state, loss = step(state, *batch_of(number % 6))
            jax.block_until_ready(loss)
        clock.step_ended()
