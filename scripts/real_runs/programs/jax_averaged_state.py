"""JAX: two devices average their gradients; slow: they average the weights and moments of Adam after each step, too, to be sure that they agree."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from scripts.real_runs.step_clock import STEPS, StepClock

DEVICES, BATCH, WIDTH, LAYERS = 2, 96, 768, 4

jax.config.update("jax_num_cpu_devices", DEVICES)
mesh = Mesh(np.array(jax.devices()), ("data",))
rng = np.random.default_rng(83)


def loss_of(weights: Any, rows: Any) -> Any:
    hidden = rows
    for matrix in weights:
        hidden = hidden + jnp.tanh(hidden @ matrix)
    return jnp.mean(jnp.square(hidden - jnp.flip(rows, axis=1)))


def adam(state: Any, slopes: Any) -> Any:
    weights, means, squares = state
    means = jax.tree.map(lambda mean, slope: 0.9 * mean + 0.1 * slope, means, slopes)
    squares = jax.tree.map(lambda one, slope: 0.99 * one + 0.01 * slope * slope, squares, slopes)
    weights = jax.tree.map(
        lambda value, mean, square: value - 1e-4 * mean / (jnp.sqrt(square) + 1e-8),
        weights,
        means,
        squares,
    )
    return weights, means, squares


def train(is_slow: bool, clock: StepClock) -> None:
    def update(state: Any, rows: Any) -> Any:
        loss, slopes = jax.value_and_grad(loss_of)(state[0], rows)
        loss, slopes = jax.lax.pmean((loss, slopes), "data")
        state = adam(state, slopes)
        return (jax.lax.pmean(state, "data") if is_slow else state), loss

    mapped = jax.shard_map(
        update,
        mesh=mesh,
        in_specs=(PartitionSpec(), PartitionSpec("data")),
        out_specs=PartitionSpec(),
        check_vma=False,
    )
    step = jax.jit(mapped, donate_argnums=0)
    weights = [rng.standard_normal([WIDTH, WIDTH]).astype(np.float32) / 60 for _ in range(LAYERS)]
    zeros = [np.zeros_like(matrix) for matrix in weights]
    state = jax.device_put((weights, zeros, zeros), NamedSharding(mesh, PartitionSpec()))
    batches = jax.device_put(
        [rng.standard_normal([DEVICES * BATCH, WIDTH], np.float32) for _ in range(6)],
        NamedSharding(mesh, PartitionSpec("data")),
    )
    for number in range(STEPS):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            state, loss = step(state, batches[number % 6])
            jax.block_until_ready(loss)
        clock.step_ended()
