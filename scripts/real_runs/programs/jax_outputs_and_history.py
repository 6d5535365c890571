"""JAX: a gated network learns to foretell a series; slow twice: `scan` carries the array that its outputs are written to, and all measurements so far are written as JSON after each step."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scripts.real_runs.step_clock import STEPS, StepClock

LENGTH, BATCH, SIGNALS, WIDTH = 128, 32, 16, 128

rng = np.random.default_rng(71)


def gated(params: Any, hidden: Any, seen: Any) -> Any:
    """The next state of a gated unit."""
    both = jnp.concatenate([hidden, seen], axis=1)
    update = jax.nn.sigmoid(both @ params["gate"])
    return update * hidden + (1 - update) * jnp.tanh(both @ params["state"])


def carried_outputs(params: Any, series: Any) -> Any:
    def move(carry: Any, place: Any) -> Any:
        hidden, outputs = carry
        hidden = gated(params, hidden, series[place])
        return (hidden, outputs.at[place].set(hidden)), None

    start = jnp.zeros([BATCH, WIDTH]), jnp.zeros([LENGTH, BATCH, WIDTH])
    (_, outputs), _ = jax.lax.scan(move, start, jnp.arange(LENGTH))
    return outputs


def stacked_outputs(params: Any, series: Any) -> Any:
    def move(hidden: Any, seen: Any) -> Any:
        hidden = gated(params, hidden, seen)
        return hidden, hidden

    return jax.lax.scan(move, jnp.zeros([BATCH, WIDTH]), series)[1]


class History:
    """Keeps what each step measured, in a file."""

    def __init__(self, path: Path, *, is_slow: bool) -> None:
        self.path, self.is_slow = path, is_slow
        self.rows: list[dict[str, Any]] = []

    def add(self, number: int, metrics: Any) -> None:
        values = {name: np.asarray(value).tolist() for name, value in metrics.items()}
        self.rows.append({"step": number, **values})
        if self.is_slow:
            self.path.write_text(json.dumps(self.rows, indent=2), encoding="utf-8")
        else:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(self.rows[-1]) + "\n")


def train(is_slow: bool, clock: StepClock) -> None:
    outputs_of = carried_outputs if is_slow else stacked_outputs

    def loss_of(params: Any, series: Any) -> Any:
        foretold = outputs_of(params, series) @ params["out"]
        errors = jnp.mean(jnp.square(foretold[:-1] - series[1:]), axis=(1, 2))
        return jnp.mean(errors), errors

    def update(params: Any, series: Any) -> Any:
        slopes, errors = jax.grad(loss_of, has_aux=True)(params, series)
        norms = {name: jnp.linalg.norm(slope, axis=0) for name, slope in slopes.items()}
        params = jax.tree.map(lambda value, slope: value - 1e-2 * slope, params, slopes)
        return params, {"errors": errors, **norms}

    step = jax.jit(update)
    shapes = {
        "gate": (WIDTH + SIGNALS, WIDTH),
        "state": (WIDTH + SIGNALS, WIDTH),
        "out": (WIDTH, SIGNALS),
    }
    params = {
        name: jnp.asarray(rng.standard_normal(shape) / 12, jnp.float32)
        for name, shape in shapes.items()
    }
    series = np.cumsum(rng.standard_normal([8, LENGTH, BATCH, SIGNALS], np.float32), axis=1) / 9
    with tempfile.TemporaryDirectory() as folder:
        history = History(Path(folder) / "history.json", is_slow=is_slow)
        for number in range(STEPS):
            with jax.profiler.StepTraceAnnotation("train", step_num=number):
                params, metrics = step(params, series[number % len(series)])
                history.add(number, metrics)
            clock.step_ended()
