"""Sounds are cleaned; slow: spectra have a prime length, and each step gives free memory back to the system."""

from __future__ import annotations

import ctypes
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scripts.real_runs.step_clock import STEPS, StepClock

SOUNDS, BATCH, LENGTH, PADDED, CHANNELS = 64, 16, 8191, 8192, 16

libc = ctypes.CDLL("libc.so.6")
rng = np.random.default_rng(23)
sounds = np.cumsum(rng.standard_normal([SOUNDS, LENGTH], np.float32), axis=1) / 40


def convolved(sound: Any, kernel: Any) -> Any:
    return jax.lax.conv_general_dilated(
        sound, kernel, (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC")
    )


def step_of(length: int) -> Any:
    def spectrum(sound: Any) -> Any:
        return jnp.abs(jnp.fft.rfft(sound, n=length, axis=1)) + 1e-3

    def loss_of(weights: Any, noisy: Any, clean: Any) -> Any:
        parts = jnp.pad(noisy, [(0, 0), (0, 1)]).reshape(len(noisy), -1, 8)
        hidden = jnp.tanh(convolved(parts, weights["first"]))
        hidden = convolved(jnp.tanh(convolved(hidden, weights["second"])), weights["third"])
        guessed = noisy + hidden.reshape(len(noisy), -1)[:, :LENGTH]
        far = jnp.mean(jnp.abs(jnp.log(spectrum(guessed)) - jnp.log(spectrum(clean))))
        return jnp.mean((guessed - clean) ** 2) + 0.1 * far

    @jax.jit  # type: ignore[untyped-decorator]  # JAX has no types here
    def train_step(weights: Any, noisy: Any, clean: Any) -> Any:
        loss, slopes = jax.value_and_grad(loss_of)(weights, noisy, clean)
        return jax.tree.map(lambda weight, slope: weight - 1e-3 * slope, weights, slopes), loss

    return train_step


def kernel(*size: int) -> Any:
    return jnp.asarray(rng.standard_normal(size, np.float32) / 20)


def train(is_slow: bool, clock: StepClock) -> None:
    weights: Any = {
        "first": kernel(9, 8, CHANNELS),
        "second": kernel(9, CHANNELS, CHANNELS),
        "third": kernel(9, CHANNELS, 8),
    }
    train_step = step_of(LENGTH if is_slow else PADDED)
    for number in range(STEPS):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            clean = sounds[rng.integers(0, SOUNDS, BATCH)]
            noisy = clean + 0.1 * rng.standard_normal(clean.shape, np.float32)
            weights, loss = train_step(weights, noisy, clean)
            jax.block_until_ready(loss)
            if is_slow:
                libc.malloc_trim(0)
        clock.step_ended()
