"""JAX: a network learns prices from a table; slow: pandas picks the rows of each batch and makes numbers of their words, row by row, not once before."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, ROWS, UNITS = 256, 6000, 512
CITIES, STATES = ("Bern", "Kyiv", "Lima", "Oslo", "Rome", "Suva"), ("new", "good", "old")

rng = np.random.default_rng(103)
frame = pd.DataFrame(
    {
        "city": rng.choice(CITIES, ROWS),
        "state": rng.choice(STATES, ROWS),
        "rooms": rng.integers(1, 9, ROWS),
        "area": rng.uniform(20, 200, ROWS).round(1),
        "built": rng.integers(1900, 2020, ROWS),
        "price": rng.uniform(1, 9, ROWS),
    }
)


def per_room(row: Any) -> float:
    return float(row["area"] / (row["rooms"] + 1))


def encoded(rows: Any) -> Any:
    """Numbers of rows of the table, and their prices."""
    cities = pd.get_dummies(pd.Categorical(rows["city"], CITIES))
    states = pd.get_dummies(pd.Categorical(rows["state"], STATES))
    numeric = rows[["rooms", "area", "built"]] / [4, 100, 2000]
    room = rows.apply(per_room, axis=1)
    values = np.column_stack([cities, states, numeric, room])
    return values.astype(np.float32), rows["price"].to_numpy(np.float32)


def loss_of(params: Any, batch: Any) -> Any:
    hidden, prices = batch
    for weight in params[:-1]:
        hidden = jax.nn.relu(hidden @ weight)
    return jnp.mean(jnp.square((hidden @ params[-1])[:, 0] - prices))


def update(params: Any, batch: Any) -> Any:
    loss, slopes = jax.value_and_grad(loss_of)(params, batch)
    return jax.tree.map(lambda value, slope: value - 1e-3 * slope, params, slopes), loss


def train(is_slow: bool, clock: StepClock) -> None:
    step = jax.jit(update)
    values, prices = encoded(frame)
    sizes = (values.shape[1], UNITS, UNITS, UNITS, 1)
    params = [
        jnp.asarray(rng.standard_normal([rows, columns]) / np.sqrt(rows), jnp.float32)
        for rows, columns in pairwise(sizes)
    ]
    for number in range(STEPS):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            chosen = rng.integers(0, ROWS, BATCH)
            batch = encoded(frame.iloc[chosen]) if is_slow else (values[chosen], prices[chosen])
            params, loss = step(params, batch)
            loss.block_until_ready()
        clock.step_ended()
