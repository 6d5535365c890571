"""JAX on one device: a recurrent network foretells the load of a plant from hours of many sensors; slow twice: (a) `scan` multiplies
the readings of each hour with the input weights in the recurrence, not all hours at once before it, (b) the window of each row is cut by
the time of its first hour with `.loc` of pandas, not by its place in an array.
"""

from __future__ import annotations

import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, HOURS, SENSORS, UNITS = 32, 60, 384, 96

WHICH = os.environ.get("WHICH", "both")
random = np.random.default_rng(5)
times = pd.date_range("2023-01-01", periods=4000, freq="h")
readings = pd.DataFrame(
    random.standard_normal((len(times), SENSORS)).astype(np.float32),
    index=times,
    columns=[f"sensor_{number}" for number in range(SENSORS)],
)
load = pd.Series(random.standard_normal(len(times)).astype(np.float32), index=times)
table, loads = np.ascontiguousarray(readings.to_numpy()), load.to_numpy()
hour = pd.Timedelta(hours=1)
span = (HOURS - 1) * hour


def batch_by_time(firsts: Any) -> Any:
    windows, wanted = [], []
    for start in times[firsts]:
        windows.append(readings.loc[start : start + span].to_numpy())
        wanted.append(load.loc[start + span + hour])
    return np.stack(windows), np.array(wanted)


def batch_by_place(firsts: Any) -> Any:
    return table[firsts[:, None] + np.arange(HOURS)], loads[firsts + HOURS]


def train(is_slow: bool, clock: StepClock) -> None:
    in_scan = is_slow and WHICH != "b"
    batch_of = batch_by_time if is_slow and WHICH != "a" else batch_by_place

    def gated(hidden: Any, gates: Any) -> Any:
        keep, new, out = jnp.split(gates, 3, -1)
        hidden = jax.nn.sigmoid(keep) * hidden + jax.nn.sigmoid(-keep) * jnp.tanh(new)
        return jax.nn.sigmoid(out) * hidden

    def foretold(weights: Any, windows: Any) -> Any:
        hours = jnp.swapaxes(windows, 0, 1)
        start = jnp.zeros((BATCH, UNITS))
        if in_scan:

            def hour(hidden: Any, row: Any) -> Any:
                gates = row @ weights["input"] + hidden @ weights["state"] + weights["bias"]
                return gated(hidden, gates), None

            last, _ = jax.lax.scan(hour, start, hours)
        else:

            def hour(hidden: Any, row: Any) -> Any:
                return gated(hidden, row + hidden @ weights["state"]), None

            last, _ = jax.lax.scan(hour, start, hours @ weights["input"] + weights["bias"])
        return last @ weights["head"]

    def loss_of(weights: Any, windows: Any, wanted: Any) -> Any:
        return jnp.mean((foretold(weights, windows)[:, 0] - wanted) ** 2)

    @jax.jit  # type: ignore[untyped-decorator]  # JAX is not installed where this is checked
    def update(weights: Any, windows: Any, wanted: Any) -> tuple[Any, Any]:
        loss, gradients = jax.value_and_grad(loss_of)(weights, windows, wanted)
        return jax.tree.map(lambda w, g: w - 1e-2 * g, weights, gradients), loss

    weights = {
        "input": jnp.asarray(random.standard_normal((SENSORS, 3 * UNITS)) / 16, jnp.float32),
        "state": jnp.asarray(random.standard_normal((UNITS, 3 * UNITS)) / 8, jnp.float32),
        "bias": jnp.zeros(3 * UNITS),
        "head": jnp.asarray(random.standard_normal((UNITS, 1)) / 8, jnp.float32),
    }
    for number in range(STEPS):
        firsts = random.integers(0, len(times) - HOURS, BATCH)
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            weights, loss = update(weights, *batch_of(firsts))
            jax.block_until_ready(loss)
        clock.step_ended()
