"""Four devices; slow: gradients are added up on a ring by hand, and a batch grows row by row."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from scripts.real_runs.step_clock import STEPS, StepClock

DEVICES, BATCH, FEATURES, WIDTH, SAMPLES = 4, 64, 768, 512, 4096

jax.config.update("jax_num_cpu_devices", DEVICES)
mesh = Mesh(np.array(jax.devices()), ("data",))
rng = np.random.default_rng(17)
samples = [rng.standard_normal(FEATURES, np.float32) for _ in range(SAMPLES)]
ring = [(device, (device + 1) % DEVICES) for device in range(DEVICES)]


def loss_of(weights: Any, rows: Any) -> Any:
    hidden = rows
    for wide, narrow in weights:
        hidden = hidden + jax.nn.gelu(hidden @ wide) @ narrow
    return jnp.mean(jnp.square(hidden - jnp.roll(rows, 1, axis=1)))


def summed_on_ring(slope: Any) -> Any:
    total = passed = slope
    for _ in range(DEVICES - 1):
        passed = jax.lax.ppermute(passed, "data", ring)
        total = total + passed
    return total


def step_of(has_ring: bool) -> Any:
    def update(weights: Any, rows: Any) -> Any:
        slopes = jax.grad(loss_of)(weights, rows)
        if has_ring:
            slopes = jax.tree.map(summed_on_ring, slopes)
        else:
            slopes = jax.lax.psum(slopes, "data")
        return jax.tree.map(lambda weight, slope: weight - 2e-4 * slope, weights, slopes)

    specs = PartitionSpec(), PartitionSpec("data")
    mapped = jax.shard_map(
        update, mesh=mesh, in_specs=specs, out_specs=PartitionSpec(), check_vma=False
    )
    return jax.jit(mapped, donate_argnums=0)


def batch_of(chosen: Any, is_grown: bool) -> Any:
    if not is_grown:
        return np.stack([samples[sample] for sample in chosen])
    rows = np.zeros([0, FEATURES], np.float32)
    for sample in chosen:
        rows = np.vstack([rows, samples[sample]])
    return rows


def train(is_slow: bool, clock: StepClock) -> None:
    sizes = [(FEATURES, WIDTH), (WIDTH, FEATURES)]
    weights: Any = [
        [jnp.asarray(rng.standard_normal(size, np.float32) / 40) for size in sizes]
        for _ in range(2)
    ]
    step = step_of(is_slow)
    for number in range(STEPS):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            chosen = rng.integers(0, SAMPLES, DEVICES * BATCH)
            rows = batch_of(chosen, is_slow)
            weights = jax.block_until_ready(step(weights, rows))
        clock.step_ended()
