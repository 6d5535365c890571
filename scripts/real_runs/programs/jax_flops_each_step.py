"""JAX: a transformer of small blocks logs its speed; slow: each step lowers its function again to know how many operations it has."""

from __future__ import annotations

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, LENGTH, WIDTH, HEADS, BLOCKS, TOKENS = 16, 48, 128, 4, 3, 256

rng = np.random.default_rng(17)


def made(*shape: int) -> Any:
    return jnp.asarray(rng.standard_normal(shape) / np.sqrt(shape[0]), jnp.float32)


def new_model() -> Any:
    return {
        "tokens": made(TOKENS, WIDTH),
        "blocks": [
            {
                "mix": made(WIDTH, 3 * WIDTH),
                "out": made(WIDTH, WIDTH),
                "up": made(WIDTH, 4 * WIDTH),
                "down": made(4 * WIDTH, WIDTH),
            }
            for _ in range(BLOCKS)
        ],
    }


def normal(values: Any) -> Any:
    return values / jnp.sqrt(jnp.mean(jnp.square(values), axis=-1, keepdims=True) + 1e-6)


def attended(block: Any, hidden: Any) -> Any:
    parts = (normal(hidden) @ block["mix"]).reshape(BATCH, -1, HEADS, 3 * WIDTH // HEADS)
    query, key, value = jnp.split(parts, 3, axis=-1)
    scores = jnp.einsum("bqhd,bkhd->bhqk", query, key) / np.sqrt(WIDTH // HEADS)
    is_past = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    shares = jax.nn.softmax(jnp.where(is_past, scores, -1e9))
    return jnp.einsum("bhqk,bkhd->bqhd", shares, value).reshape(hidden.shape) @ block["out"]


def loss_of(model: Any, text: Any) -> Any:
    hidden = model["tokens"][text[:, :-1]]
    for block in model["blocks"]:
        hidden = hidden + attended(block, hidden)
        hidden = hidden + jax.nn.gelu(normal(hidden) @ block["up"]) @ block["down"]
    scores = jax.nn.log_softmax(normal(hidden) @ model["tokens"].T)
    return -jnp.mean(jnp.take_along_axis(scores, text[:, 1:, None], axis=-1))


def update(model: Any, text: Any) -> Any:
    loss, slopes = jax.value_and_grad(loss_of)(model, text)
    return jax.tree.map(lambda value, slope: value - 1e-2 * slope, model, slopes), loss


class Speed:
    """Operations per second of each step."""

    def __init__(self, step: Any, *, is_slow: bool) -> None:
        self._step, self._is_slow = step, is_slow
        self._operations: float | None = None
        self.each: list[float] = []

    def add(self, seconds: float, *arguments: Any) -> None:
        if self._operations is None or self._is_slow:
            analysis = self._step.lower(*arguments).cost_analysis()
            self._operations = analysis["flops"]
        self.each.append(self._operations / seconds)


def train(is_slow: bool, clock: StepClock) -> None:
    step = jax.jit(update)
    speed = Speed(step, is_slow=is_slow)
    model, texts = new_model(), rng.integers(0, TOKENS, [8, BATCH, LENGTH + 1])
    for number in range(STEPS):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            text, start = texts[number % len(texts)], time.perf_counter()
            model, _ = jax.block_until_ready(step(model, text))
            speed.add(time.perf_counter() - start, model, text)
        clock.step_ended()
