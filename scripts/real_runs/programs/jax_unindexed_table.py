"""JAX: a recurrent network learns from sessions in a data base; slow: the table has no index, so that each query reads all of it."""

from __future__ import annotations

import sqlite3
import tempfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scripts.real_runs.step_clock import STEPS, StepClock

SESSIONS, LENGTH, FEATURES, UNITS = 200, 96, 48, 320
"""One session is a batch of its `LENGTH` windows."""

rng = np.random.default_rng(29)
folder = Path(tempfile.mkdtemp())


def table_at(path: Path, is_indexed: bool) -> sqlite3.Connection:
    """A table of windows in the order in which they came, those of a session far from each other."""
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE windows (session INTEGER, place INTEGER, signal BLOB)")
    signals = rng.standard_normal([LENGTH, 8, FEATURES], np.float32)
    for place, signal in enumerate(signals):
        rows = [(session, place, signal.tobytes()) for session in rng.permutation(SESSIONS)]
        connection.executemany(
            "INSERT INTO windows VALUES (?, ?, ?)", [(int(one), *rest) for one, *rest in rows]
        )
    if is_indexed:
        connection.execute("CREATE INDEX by_session ON windows (session)")
    connection.commit()
    return connection


tables = {is_slow: table_at(folder / f"{is_slow}.db", not is_slow) for is_slow in (False, True)}


def session_of(table: sqlite3.Connection, number: int) -> Any:
    """All windows of one session."""
    found = table.execute("SELECT signal FROM windows WHERE session = ?", (number,)).fetchall()
    return np.stack([np.frombuffer(signal, np.float32) for (signal,) in found])


def loss_of(params: Any, signals: Any) -> Any:
    windows = signals.reshape(LENGTH, 8, FEATURES)

    def move(state: Any, rows: Any) -> Any:
        state = jnp.tanh(rows @ params["in"] + state @ params["state"])
        return state, state @ params["out"]

    _, guesses = jax.lax.scan(move, jnp.zeros([LENGTH, UNITS]), windows.swapaxes(0, 1))
    return jnp.mean(jnp.square(guesses[:-1] - windows.swapaxes(0, 1)[1:]))


@jax.jit  # type: ignore[untyped-decorator]
def step(params: Any, signals: Any) -> Any:
    loss, slopes = jax.value_and_grad(loss_of)(params, signals)
    return jax.tree.map(lambda value, slope: value - 1e-2 * slope, params, slopes), loss


def train(is_slow: bool, clock: StepClock) -> None:
    shapes = {"in": (FEATURES, UNITS), "state": (UNITS, UNITS), "out": (UNITS, FEATURES)}
    params = {
        name: jnp.asarray(rng.standard_normal(shape) * 0.05, jnp.float32)
        for name, shape in shapes.items()
    }
    for number in range(STEPS):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            params, loss = step(params, session_of(tables[is_slow], number * 7 % SESSIONS))
            jax.block_until_ready(loss)
        clock.step_ended()
