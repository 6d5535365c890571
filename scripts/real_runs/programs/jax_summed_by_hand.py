"""JAX: two devices each have a copy of the weights; slow: gradients are moved to the first device, summed there, and the new weights are moved back, not averaged within the step."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from scripts.real_runs.step_clock import STEPS, StepClock

DEVICES, LAYERS, ROWS, WIDTH = 2, 16, 256, 160

jax.config.update("jax_num_cpu_devices", DEVICES)
devices = jax.devices()
mesh = Mesh(np.array(devices), ("data",))
rng = np.random.default_rng(109)
# As on two real devices, none of them computes on the cores of the other.
one_thread = {"xla_cpu_multi_thread_eigen": False}
start = [
    {
        "kernel": (rng.standard_normal([WIDTH, WIDTH]) / 13).astype(np.float32),
        "bias": np.zeros(WIDTH, np.float32),
        "scale": np.ones(WIDTH, np.float32),
    }
    for _ in range(LAYERS)
]
batches = rng.standard_normal([4, DEVICES * ROWS, WIDTH]).astype(np.float32)


def loss_of(weights: Any, rows: Any) -> Any:
    hidden = rows
    for layer in weights:
        hidden = jnp.tanh(hidden @ layer["kernel"] * layer["scale"] + layer["bias"])
    return jnp.mean(jnp.square(hidden - rows))


def descended(weights: Any, slopes: Any) -> Any:
    return jax.tree.map(lambda weight, slope: weight - 1e-2 * slope, weights, slopes)


def by_hand(clock: StepClock) -> None:
    slopes_of = jax.jit(jax.grad(loss_of), compiler_options=one_thread)
    apply = jax.jit(descended, compiler_options=one_thread)
    copies = [jax.device_put(start, device) for device in devices]
    for number in range(STEPS):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            parts = np.split(batches[number % len(batches)], DEVICES)
            slopes = [
                slopes_of(copy, jax.device_put(rows, device))
                for copy, rows, device in zip(copies, parts, devices, strict=True)
            ]
            total = slopes[0]
            for others in slopes[1:]:
                moved = jax.device_put(others, devices[0])
                total = jax.tree.map(jnp.add, total, moved)
            mean = jax.tree.map(lambda slope: slope / DEVICES, total)
            weights = apply(copies[0], mean)
            copies = [jax.device_put(weights, device) for device in devices]
            jax.block_until_ready(copies)
        clock.step_ended()


def within_the_step(clock: StepClock) -> None:
    def update(weights: Any, rows: Any) -> Any:
        slopes = jax.grad(loss_of)(weights, rows)
        flat, unflatten = ravel_pytree(slopes)
        return descended(weights, unflatten(jax.lax.pmean(flat, "data")))

    whole, by_device = PartitionSpec(), PartitionSpec("data")
    mapped = jax.shard_map(
        update, mesh=mesh, in_specs=(whole, by_device), out_specs=whole, check_vma=False
    )
    step = jax.jit(mapped, donate_argnums=0, compiler_options=one_thread)
    weights = jax.device_put(start, NamedSharding(mesh, whole))
    for number in range(STEPS):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            rows = jax.device_put(batches[number % len(batches)], NamedSharding(mesh, by_device))
            weights = step(weights, rows)
            jax.block_until_ready(weights)
        clock.step_ended()


def train(is_slow: bool, clock: StepClock) -> None:
    (by_hand if is_slow else within_the_step)(clock)
