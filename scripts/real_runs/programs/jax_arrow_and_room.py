"""JAX on one device learns to take the echo of a room from sounds; slow: (a) rows of an Arrow table become Python lists before they
become an array, (b) the echo of a room is a convolution tap by tap, not a product of spectra.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa

from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, SAMPLES, TAPS, FRAME, UNITS = 32, 4096, 96, 256, 640
random = np.random.default_rng(1)
dry = random.standard_normal((BATCH * 4, SAMPLES)).astype(np.float32)
sounds = pa.table({"sound": pa.FixedSizeListArray.from_arrays(pa.array(dry.reshape(-1)), SAMPLES)})
room = random.standard_normal(TAPS) * np.exp(-np.arange(TAPS) / 150.0)
room = jnp.asarray(room / np.abs(room).sum(), jnp.float32)


def batch_of(number: int, by_lists: bool) -> Any:
    """The sounds of a batch."""
    column = sounds.slice(number % 4 * BATCH, BATCH)["sound"].combine_chunks()
    if by_lists:
        return np.array(column.to_pylist(), np.float32)
    return column.flatten().to_numpy().reshape(BATCH, SAMPLES)


def train(is_slow: bool, clock: StepClock) -> None:
    by_lists = is_slow
    by_taps = is_slow

    def with_echo(rows: Any) -> Any:
        if by_taps:
            return jax.vmap(lambda row: jnp.convolve(row, room)[:SAMPLES])(rows)
        length = 2 * SAMPLES
        spectra = jnp.fft.rfft(rows, length) * jnp.fft.rfft(room, length)
        return jnp.fft.irfft(spectra, length)[:, :SAMPLES]

    def loss_of(weights: Any, rows: Any) -> Any:
        first, second, last = weights
        frames = with_echo(rows).reshape(-1, FRAME)
        hidden = jnp.tanh(jnp.tanh(frames @ first) @ second)
        return jnp.mean((hidden @ last - rows.reshape(-1, FRAME)) ** 2)

    def update(weights: Any, rows: Any) -> tuple[Any, Any]:
        loss, gradients = jax.value_and_grad(loss_of)(weights, rows)
        return [w - 1e-2 * g for w, g in zip(weights, gradients, strict=True)], loss

    compiled_update = jax.jit(update)
    shapes = [(FRAME, UNITS), (UNITS, UNITS), (UNITS, FRAME)]
    weights = [jnp.asarray(random.standard_normal(s) / s[0] ** 0.5, jnp.float32) for s in shapes]
    losses = []
    for number in range(STEPS):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            weights, loss = compiled_update(weights, batch_of(number, by_lists))
            losses.append(float(loss))
        clock.step_ended()
