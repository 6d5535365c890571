"""JAX: a recurrent model of letters by `scan`; slow: every sixth step writes a sample of text, one call and one read for each letter."""

from __future__ import annotations

import string
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, LENGTH, WIDTH, SAMPLE = 64, 20, 192, 360
LETTERS = string.ascii_lowercase + " .,!?"

rng = np.random.default_rng(37)


class Cell(NamedTuple):
    """Weights of a gated recurrent unit, and the vectors of letters."""

    letters: Any
    gates: Any
    change: Any
    out: Any


def advance(cell: Cell, state: Any, letter: Any) -> Any:
    inputs = jnp.concatenate([cell.letters[letter], state], axis=-1)
    keep, reset = jnp.split(jax.nn.sigmoid(inputs @ cell.gates), 2, axis=-1)
    changed = jnp.concatenate([cell.letters[letter], reset * state], axis=-1)
    state = keep * state + (1 - keep) * jnp.tanh(changed @ cell.change)
    return state, state @ cell.out


def loss_of(cell: Cell, text: Any) -> Any:
    def read(state: Any, letter: Any) -> Any:
        return advance(cell, state, letter)

    _, scores = jax.lax.scan(read, jnp.zeros([BATCH, WIDTH]), text[:-1])
    known = jnp.take_along_axis(jax.nn.log_softmax(scores), text[1:, :, None], axis=-1)
    return -jnp.mean(known)


def update(cell: Cell, text: Any) -> Any:
    loss, slopes = jax.value_and_grad(loss_of)(cell, text)
    return jax.tree.map(lambda value, slope: value - 1e-2 * slope, cell, slopes), loss


def following(cell: Cell, state: Any, letter: Any, key: Any) -> Any:
    state, scores = advance(cell, state, letter)
    key, used = jax.random.split(key)
    return state, jax.random.categorical(used, scores / 0.8), key


def written(next_letter: Any, cell: Cell) -> str:
    state, letter, key, text = jnp.zeros(WIDTH), 0, jax.random.key(5), ""
    for _ in range(SAMPLE):
        state, drawn, key = next_letter(cell, state, letter, key)
        letter = int(drawn)
        text += LETTERS[letter]
    return text


def train(is_slow: bool, clock: StepClock) -> None:
    def made(*shape: int) -> Any:
        return jnp.asarray(rng.standard_normal(shape) / 12, jnp.float32)

    count = len(LETTERS)
    cell = Cell(
        made(count, WIDTH),
        made(2 * WIDTH, 2 * WIDTH),
        made(2 * WIDTH, WIDTH),
        made(WIDTH, count),
    )
    texts = rng.integers(0, count, [8, LENGTH + 1, BATCH])
    samples, step, next_letter = [], jax.jit(update), jax.jit(following)
    for number in range(STEPS):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            cell, loss = step(cell, texts[number % len(texts)])
            loss.block_until_ready()
            if is_slow and number % 6 == 2:
                samples.append(written(next_letter, cell))
        clock.step_ended()
