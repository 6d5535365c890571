"""JAX: `pmap` over four CPU devices; slow twice: NumPy sorts each batch before the call, and the step calls Python."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scripts.real_runs.step_clock import STEPS, StepClock

DEVICES, BATCH, FEATURES = 4, 64, 384

jax.config.update("jax_num_cpu_devices", DEVICES)
rng = np.random.default_rng(1)
rows = rng.standard_normal([DEVICES, BATCH, FEATURES]).astype(np.float32)


def ranked(values: Any) -> Any:
    return np.float32(sum(sorted(np.asarray(values)[:3].ravel().tolist())[::2]))


def train(is_slow: bool, clock: StepClock) -> None:
    def loss_of(weight: Any, batch: Any) -> Any:
        outputs = jnp.tanh(jnp.tanh(jnp.tanh(batch @ weight) @ weight) @ weight)
        return jnp.mean(jnp.square(outputs - batch))

    def update(weight: Any, batch: Any) -> Any:
        gradient = jax.lax.pmean(jax.grad(loss_of)(weight, batch), "devices")
        if is_slow:
            rank = jax.pure_callback(ranked, jax.ShapeDtypeStruct((), jnp.float32), batch)
            gradient = gradient + 1e-12 * rank
        return weight - 1e-3 * gradient

    step = jax.pmap(update, axis_name="devices")
    weight = rng.standard_normal([DEVICES, FEATURES, FEATURES]).astype(np.float32) / 30
    for number in range(STEPS):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            batch = np.sort(np.tile(rows, 4), axis=2)[:, :, ::4].copy() if is_slow else rows
            weight = jax.block_until_ready(step(weight, batch))
        clock.step_ended()
