"""JAX: the settings of a model are a static argument; slow: they hold the whole vocabulary, which each call of the step hashes and compares."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, LENGTH, WORDS, WIDTH, LAYERS = 64, 20, 24000, 96, 3

rng = np.random.default_rng(17)


@dataclass(frozen=True)
class Word:
    """One word of the vocabulary."""

    text: str
    number: int


@dataclass(frozen=True)
class Settings:
    """What the model is like."""

    layers: int
    rate: float
    vocabulary: tuple[Word, ...]


def loss_of(weights: Any, words: Any, settings: Settings) -> Any:
    hidden = weights["table"][words[:, :-1]]
    for layer in range(settings.layers):
        before = jnp.cumsum(hidden, axis=1) / jnp.arange(1, LENGTH + 1)[:, None]
        hidden = hidden + jnp.tanh(before @ weights["kernels"][layer])
    following = weights["table"][words[:, 1:]]
    others = weights["table"][jnp.roll(words[:, 1:], 1, axis=0)]
    margins = jnp.sum(hidden * (following - others), axis=-1)
    return jnp.mean(jax.nn.softplus(-margins))


@partial(jax.jit, static_argnames="settings", donate_argnums=0)
def update(weights: Any, words: Any, settings: Settings) -> Any:
    loss, slopes = jax.value_and_grad(loss_of)(weights, words, settings)
    return jax.tree.map(lambda w, slope: w - settings.rate * slope, weights, slopes), loss


def train(is_slow: bool, clock: StepClock) -> None:
    vocabulary = tuple(Word(f"word{number}", number) for number in range(WORDS if is_slow else 3))
    settings = Settings(LAYERS, 1e-2, vocabulary)
    weights = {
        "table": jnp.asarray(rng.standard_normal([2000, WIDTH], np.float32) * 0.1),
        "kernels": jnp.asarray(rng.standard_normal([LAYERS, WIDTH, WIDTH], np.float32) * 0.1),
    }
    texts = rng.integers(0, 2000, [6, BATCH, LENGTH + 1], np.int32)
    for number in range(STEPS):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            weights, loss = update(weights, texts[number % 6], settings)
            jax.block_until_ready(loss)
        clock.step_ended()
