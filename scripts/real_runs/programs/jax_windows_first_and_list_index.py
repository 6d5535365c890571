"""JAX on one device: demand at stations is foretold from windows of hidden states; slow twice: (a) windows are cut before the layer that
makes hidden states, which sees each time once for every window that holds it, not after it, (b) the number of a station is looked for
by `list.index`, not in a dict.
"""

from __future__ import annotations

import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, TIMES, SENSORS, UNITS, WINDOW, STATIONS = 64, 96, 12, 32, 8, 6000
PLACES = TIMES - WINDOW + 1
WHICH = os.environ.get("WHICH", "both")
random = np.random.default_rng(7)

stations = [f"station {number * 7919 % 100_003:06d}" for number in range(STATIONS)]
numbers_of = {name: number for number, name in enumerate(stations)}
series = random.standard_normal((6, BATCH, TIMES, SENSORS)).astype(np.float32)
demands = random.standard_normal((6, BATCH, PLACES)).astype(np.float32)
names = [[stations[n] for n in random.integers(0, STATIONS, BATCH)] for _ in range(6)]


def initial() -> Any:
    def normal(*shape: int) -> Any:
        return jnp.asarray(random.standard_normal(shape) / shape[0] ** 0.5, jnp.float32)

    return {
        "sensors": normal(SENSORS, UNITS),
        "stations": normal(STATIONS, 24),
        "first": normal(WINDOW * UNITS, 24),
        "last": normal(24),
    }


def train(is_slow: bool, clock: StepClock) -> None:
    is_cut_first = is_slow and WHICH in ("a", "both")
    is_searched = is_slow and WHICH in ("b", "both")

    def windows(rows: Any) -> Any:
        """Rows of each window, for all places where one begins."""
        return jnp.stack([rows[:, shift : shift + PLACES] for shift in range(WINDOW)], axis=2)

    def hidden_of(weights: Any, rows: Any) -> Any:
        return jnp.tanh(rows @ weights["sensors"])

    def loss_of(weights: Any, rows: Any, ids: Any, wanted: Any) -> Any:
        if is_cut_first:
            hidden = hidden_of(weights, windows(rows))
        else:
            hidden = windows(hidden_of(weights, rows))
        hidden = hidden.reshape(BATCH, PLACES, -1) @ weights["first"]
        hidden = jax.nn.relu(hidden + weights["stations"][ids][:, None])
        return jnp.mean((hidden @ weights["last"] - wanted) ** 2)

    def update(weights: Any, rows: Any, ids: Any, wanted: Any) -> Any:
        loss, gradients = jax.value_and_grad(loss_of)(weights, rows, ids, wanted)
        return jax.tree.map(lambda w, g: w - 1e-2 * g, weights, gradients), loss

    compiled_update = jax.jit(update, donate_argnums=0)

    def ids_of(batch: list[str]) -> Any:
        if is_searched:
            return np.array([stations.index(name) for name in batch], np.int32)
        return np.array([numbers_of[name] for name in batch], np.int32)

    weights = initial()
    before = None
    for number in range(STEPS):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            chosen = number % 6
            ids = ids_of(names[chosen])
            weights, loss = compiled_update(weights, series[chosen], ids, demands[chosen])
            jax.block_until_ready(loss)
        before = loss
        clock.step_ended()
    assert before is not None
