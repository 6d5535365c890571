"""JAX: four devices share the weights and moments of Adam between steps; slow: `device_put` spreads and gathers them outside of the step."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from scripts.real_runs.step_clock import STEPS, StepClock

DEVICES, BATCH, WIDTH, LAYERS = 4, 256, 512, 4

jax.config.update("jax_num_cpu_devices", DEVICES)
mesh = Mesh(np.array(jax.devices()), ("data",))
by_row = NamedSharding(mesh, PartitionSpec("data"))
everywhere = NamedSharding(mesh, PartitionSpec())
rng = np.random.default_rng(41)


class State(NamedTuple):
    """Weights, and the moments of their gradients."""

    weights: Any
    mean: Any
    square: Any


def loss_of(weights: Any, rows: Any) -> Any:
    hidden = rows
    for weight in weights:
        hidden = jax.nn.silu(hidden @ weight)
    return jnp.mean(jnp.square(hidden - rows))


def update(state: State, rows: Any) -> Any:
    loss, slopes = jax.value_and_grad(loss_of)(state.weights, rows)
    mean = jax.tree.map(lambda old, slope: 0.9 * old + 0.1 * slope, state.mean, slopes)
    square = jax.tree.map(lambda old, slope: 0.99 * old + 0.01 * slope**2, state.square, slopes)
    weights = jax.tree.map(changed, state.weights, mean, square)
    return State(weights, mean, square), loss


def changed(weight: Any, mean: Any, square: Any) -> Any:
    return weight - 1e-3 * mean / (jnp.sqrt(square) + 1e-8)


def train(is_slow: bool, clock: StepClock) -> None:
    step = jax.jit(update, donate_argnums=0)
    start = list((rng.standard_normal([LAYERS, WIDTH, WIDTH]) / 25).astype(np.float32))
    zeros = [0 * weight for weight in start]
    state = jax.device_put(State(start, zeros, zeros), everywhere)
    batches = [
        jax.device_put(batch, by_row)
        for batch in rng.standard_normal([4, BATCH, WIDTH]).astype(np.float32)
    ]
    for number in range(STEPS):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            state, _ = step(state, batches[number % len(batches)])
            if is_slow:
                # The memory of a device is for activations; the next step asks for the whole again.
                shared = jax.device_put(state, by_row)
                state = jax.device_put(shared, everywhere)
            jax.block_until_ready(state)
        clock.step_ended()
