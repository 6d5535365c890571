"""JAX: `pmap` with donated weights, a checkpoint in a thread after every fourth step; slow: it is compressed, and the next one waits for it."""

from __future__ import annotations

import tempfile
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scripts.real_runs.step_clock import STEPS, StepClock

DEVICES, BATCH, WIDTH, PERIOD = 4, 192, 320, 4

jax.config.update("jax_num_cpu_devices", DEVICES)
rng = np.random.default_rng(17)


class Checkpointer:
    """Writes weights in a thread, one checkpoint at a time."""

    def __init__(self, folder: Path, is_slow: bool) -> None:
        self.folder, self.is_slow = folder, is_slow
        self.pool = ThreadPoolExecutor(1, "checkpoint")
        self.pending: Future[None] | None = None

    def write(self, path: Path, values: list[Any]) -> None:
        if self.is_slow:
            np.savez_compressed(path, *values)
        else:
            np.savez(path, *values)

    def save(self, number: int, weights: list[Any]) -> None:
        self.wait()
        values = jax.device_get([weight[0] for weight in weights])
        self.pending = self.pool.submit(self.write, self.folder / f"{number % 8}.npz", values)

    def wait(self) -> None:
        if self.pending is not None:
            self.pending.result()

    def close(self) -> None:
        self.wait()
        self.pool.shutdown()


def loss_of(weights: Any, rows: Any) -> Any:
    outputs = rows
    for weight in weights:
        outputs = outputs + jnp.tanh(outputs @ weight)
    return jnp.mean(jnp.square(outputs - 2 * rows))


def update(weights: Any, rows: Any) -> Any:
    slopes = jax.lax.pmean(jax.grad(loss_of)(weights, rows), "replica")
    return [weight - 1e-3 * slope for weight, slope in zip(weights, slopes, strict=True)]


def train(is_slow: bool, clock: StepClock) -> None:
    step = jax.pmap(update, axis_name="replica", donate_argnums=0)
    rows = jax.pmap(lambda part: part)(
        rng.standard_normal([DEVICES, BATCH, WIDTH]).astype(np.float32)
    )
    weight = (rng.standard_normal([WIDTH, WIDTH]) / 60).astype(np.float32)
    weights = jax.pmap(lambda _: [weight] * 5)(np.arange(DEVICES))
    with tempfile.TemporaryDirectory() as folder:
        checkpointer = Checkpointer(Path(folder), is_slow)
        for number in range(1, STEPS + 1):
            with jax.profiler.StepTraceAnnotation("train", step_num=number):
                weights = step(weights, rows)
                jax.block_until_ready(weights)
                if number % PERIOD == 0:
                    checkpointer.save(number, weights)
            clock.step_ended()
        checkpointer.close()
