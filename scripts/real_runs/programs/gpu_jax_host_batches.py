"""JAX on a GPU, the step called without a marker; slow: each batch lies in host memory and is copied by the call."""

from __future__ import annotations

import jax

from scripts.real_runs.jax_training import WIDTH, numbers, sized, update, weights_of
from scripts.real_runs.step_clock import STEPS, StepClock

BATCH = sized(4096, 32)
rows = numbers(BATCH, WIDTH)


def train(is_slow: bool, clock: StepClock) -> None:
    step, weights = jax.jit(update), weights_of(WIDTH, 3)
    batch = rows if is_slow else jax.device_put(rows)
    before = None
    for _ in range(STEPS):
        weights, loss = step(weights, batch)
        if before is not None:
            before.block_until_ready()
        before = loss
        clock.step_ended()
