"""JAX on a GPU; slow: each sample becomes an array of the GPU by itself, and they are stacked there op by op."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from scripts.real_runs.jax_training import numbers, run_steps, sized, update, weights_of
from scripts.real_runs.step_clock import StepClock

SAMPLES, LENGTH, FEATURES = sized(512, 16), 16, sized(1024, 64)
samples = list(numbers(SAMPLES, LENGTH, FEATURES))


def train(is_slow: bool, clock: StepClock) -> None:
    step, state = jax.jit(update, donate_argnums=0), [weights_of(FEATURES, 16)]
    ready = jnp.stack(samples).reshape(-1, FEATURES)

    def train_step(_: int) -> Any:
        batch = ready
        if is_slow:
            batch = jnp.stack([jnp.asarray(sample) for sample in samples]).reshape(-1, FEATURES)
        state[0], loss = step(state[0], batch)
        return loss

    run_steps(clock, train_step)
