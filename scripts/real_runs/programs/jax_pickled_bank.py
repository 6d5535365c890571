"""JAX on two devices; slow: a process cuts each batch from a bank of sounds by a method of the bank, so that each call sends the
whole bank along, not by a function that finds the bank in its process.
"""

from __future__ import annotations

import multiprocessing
import os
from typing import Any

import numpy as np

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=2")

SOUNDS, SAMPLES, BATCH, LENGTH, UNITS = 128, 8192, 64, 1024, 512


class Bank:
    """Sounds that batches are cut from."""

    def __init__(self) -> None:
        self.sounds = np.random.default_rng(1).standard_normal((SOUNDS, SAMPLES), np.float32)

    def cut(self, seed: int) -> Any:
        """A batch of parts of sounds."""
        random = np.random.default_rng(seed)
        rows = random.integers(0, SOUNDS, BATCH)
        starts = random.integers(0, SAMPLES - LENGTH, BATCH)
        return np.stack([self.sounds[r, s : s + LENGTH] for r, s in zip(rows, starts, strict=True)])


bank = Bank()


def cut(seed: int) -> Any:
    """A batch from the bank that this process had from its start."""
    return bank.cut(seed)


# The process is forked before JAX starts its threads.
pool = multiprocessing.get_context("fork").Pool(1) if __name__ in ("__main__", "prog") else None

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from jax.sharding import Mesh, NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

from scripts.real_runs.step_clock import STEPS, StepClock  # noqa: E402

mesh = Mesh(np.array(jax.devices()), ("data",))
by_rows, everywhere = NamedSharding(mesh, P("data")), NamedSharding(mesh, P())


def train(is_slow: bool, clock: StepClock) -> None:
    assert pool is not None

    def loss_of(weights: Any, rows: Any) -> Any:
        first, second, last = weights
        hidden = jnp.tanh(jnp.tanh(rows @ first) @ second)
        return jnp.mean((hidden @ last - rows) ** 2)

    def update(weights: Any, rows: Any) -> tuple[Any, Any]:
        loss, gradients = jax.value_and_grad(loss_of)(weights, rows)
        return [w - 1e-2 * g for w, g in zip(weights, gradients, strict=True)], loss

    compiled_update = jax.jit(update)
    random = np.random.default_rng(2)
    shapes = [(LENGTH, UNITS), (UNITS, UNITS), (UNITS, LENGTH)]
    weights = jax.device_put(
        [random.standard_normal(s, np.float32) / s[0] ** 0.5 for s in shapes], everywhere
    )
    for number in range(STEPS):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            rows = pool.apply(bank.cut if is_slow else cut, (number,))
            weights, loss = compiled_update(weights, jax.device_put(rows, by_rows))
            if number % 12 == 0:
                print(float(loss))
            jax.block_until_ready(loss)
        clock.step_ended()
