"""JAX on a GPU; slow: the weights are copied to the host and written after each step."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scripts.real_runs.jax_training import numbers, run_steps, sized, update, weights_of
from scripts.real_runs.step_clock import StepClock

BATCH, FEATURES = sized(4096, 32), sized(2048, 64)
rows = jnp.asarray(numbers(BATCH, FEATURES))


def train(is_slow: bool, clock: StepClock) -> None:
    step, state = jax.jit(update), [weights_of(FEATURES, 4)]
    with tempfile.TemporaryDirectory() as folder:

        def train_step(_: int) -> Any:
            state[0], loss = step(state[0], rows)
            if is_slow:
                np.savez(Path(folder) / "weights.npz", *jax.device_get(state[0]))
            return loss

        run_steps(clock, train_step)
