"""JAX: all samples lie in halves on two devices; slow: a batch is drawn by numbers of any samples, which moves rows between devices, not by each device of its own."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from scripts.real_runs.step_clock import STEPS, StepClock

DEVICES, SAMPLES, BATCH, FEATURES, UNITS = 2, 8192, 2048, 1024, 96

jax.config.update("jax_num_cpu_devices", DEVICES)
mesh = Mesh(np.array(jax.devices()), ("data",))
whole, by_device = PartitionSpec(), PartitionSpec("data")
halves = NamedSharding(mesh, by_device)
rng = np.random.default_rng(71)
# As on two real devices, none of them computes on the cores of the other.
one_thread = {"xla_cpu_multi_thread_eigen": False}
samples = jax.device_put(rng.standard_normal([SAMPLES, FEATURES]).astype(np.float32), halves)
sizes = (FEATURES, UNITS, UNITS, 24)
start = [
    (rng.standard_normal([one, other]) / one**0.5).astype(np.float32)
    for one, other in pairwise(sizes)
]


def loss_of(weights: Any, rows: Any) -> Any:
    hidden = rows
    for weight in weights:
        hidden = jnp.tanh(hidden @ weight)
    return jnp.mean(jnp.square(jnp.mean(hidden, axis=0) - 0.1))


def train(is_slow: bool, clock: StepClock) -> None:
    def own_rows(part: Any, places: Any) -> Any:
        return part[places]

    drawn = jax.shard_map(own_rows, mesh=mesh, in_specs=(by_device, by_device), out_specs=by_device)

    def update(weights: Any, all_rows: Any, places: Any) -> Any:
        if is_slow:
            rows = jax.lax.with_sharding_constraint(all_rows[places], halves)
        else:
            rows = drawn(all_rows, places)
        loss, slopes = jax.value_and_grad(loss_of)(weights, rows)
        return [w - 1e-2 * slope for w, slope in zip(weights, slopes, strict=True)], loss

    step = jax.jit(update, donate_argnums=0, compiler_options=one_thread)
    weights = jax.device_put(start, NamedSharding(mesh, whole))
    limit = SAMPLES if is_slow else SAMPLES // DEVICES
    for number in range(STEPS):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            places = jax.device_put(rng.integers(0, limit, BATCH, np.int32), halves)
            weights, loss = step(weights, samples, places)
            jax.block_until_ready(loss)
        clock.step_ended()
