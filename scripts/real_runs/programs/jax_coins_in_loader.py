"""JAX on one device: a network tells small pictures apart, whose batches a thread prepares ahead in NumPy; slow: the thread draws the
flip, the shift and the light of each picture by `jax.random`, op by op, and reads them, not by a generator of NumPy.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, SIDE, UNITS, KINDS, PICTURES = 32, 32, 640, 10, 2048

rng = np.random.default_rng(11)
pictures = rng.integers(0, 256, (PICTURES, SIDE, SIDE, 3)).astype(np.uint8)
kinds = rng.integers(0, KINDS, PICTURES).astype(np.int32)


class JaxDraws:
    """How each picture is changed, from a key that is kept."""

    def __init__(self, seed: int) -> None:
        self.key = jax.random.key(seed)

    def next(self) -> tuple[bool, int, float]:
        self.key, flip, move, light = jax.random.split(self.key, 4)
        flipped = bool(jax.random.bernoulli(flip))
        shift = int(jax.random.randint(move, (), -3, 4))
        return flipped, shift, float(jax.random.uniform(light, (), minval=0.8, maxval=1.2))


class NumpyDraws:
    """The same from a generator of NumPy."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def next(self) -> tuple[bool, int, float]:
        return self.rng.random() < 0.5, int(self.rng.integers(-3, 4)), self.rng.uniform(0.8, 1.2)


def prepared(chosen: Any, draws: Any) -> tuple[Any, Any]:
    batch = np.empty((len(chosen), SIDE, SIDE, 3), np.float32)
    for place, number in enumerate(chosen):
        flipped, shift, light = draws.next()
        picture = pictures[number]
        if flipped:
            picture = picture[:, ::-1]
        batch[place] = np.roll(picture, shift, 1) * np.float32(light / 255)
    return batch, kinds[chosen]


def ahead(draws: Any) -> Iterator[tuple[Any, Any]]:
    ready: queue.Queue[Any] = queue.Queue(3)
    order = rng.permutation(PICTURES)

    def fill() -> None:
        for number in range(STEPS):
            ready.put(prepared(order[number * BATCH % PICTURES :][:BATCH], draws))

    threading.Thread(target=fill, name="loader", daemon=True).start()
    for _ in range(STEPS):
        yield ready.get()


def loss_of(weights: Any, batch: Any, labels: Any) -> Any:
    hidden = batch.reshape(len(batch), -1)
    for weight in weights[:-1]:
        hidden = jax.nn.relu(hidden @ weight)
    scores = jax.nn.log_softmax(hidden @ weights[-1])
    return -jnp.mean(jnp.take_along_axis(scores, labels[:, None], 1))


def update(weights: Any, batch: Any, labels: Any) -> tuple[Any, Any]:
    loss, slopes = jax.value_and_grad(loss_of)(weights, batch, labels)
    return [w - 1e-2 * g for w, g in zip(weights, slopes, strict=True)], loss


step = jax.jit(update, donate_argnums=0)


def train(is_slow: bool, clock: StepClock) -> None:
    sizes = [SIDE * SIDE * 3, UNITS, UNITS, UNITS, KINDS]
    weights = [
        jnp.asarray(rng.standard_normal(shape) / shape[0] ** 0.5, jnp.float32)
        for shape in pairwise(sizes)
    ]
    before = None
    for number, batch in enumerate(ahead(JaxDraws(5) if is_slow else NumpyDraws(5))):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            weights, loss = step(weights, *batch)
            jax.block_until_ready(before)
        before = loss
        clock.step_ended()


if __name__ == "__main__":
    from scripts.real_runs.step_clock import run_blocks

    run_blocks(train)
