"""JAX on a GPU, small batches by `scan` in one call; slow: each of them reports its loss to Python by an ordered `io_callback`."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import io_callback

from scripts.real_runs.jax_training import loss_of, numbers, run_steps, sized, weights_of
from scripts.real_runs.step_clock import StepClock

PARTS, BATCH, FEATURES = sized(8, 2), sized(2048, 16), sized(2048, 64)
rows = jnp.asarray(numbers(PARTS, BATCH, FEATURES))


log, curve = io.StringIO(), [0.0] * 1000


def report(part: Any, loss: Any) -> None:
    curve[:] = [*curve[1:], float(loss)]
    log.write(json.dumps({"part": int(part), "curve": [round(value, 5) for value in curve]}))


def step_of(is_reporting: bool) -> Callable[[Any, Any], Any]:
    def add(sums_and_weights: Any, part_and_batch: Any) -> Any:
        (sums, weights), (part, batch) = sums_and_weights, part_and_batch
        loss, gradients = jax.value_and_grad(loss_of)(weights, batch)
        if is_reporting:
            io_callback(report, None, part, loss, ordered=True)
        return ([total + g for total, g in zip(sums, gradients, strict=True)], weights), loss

    def step_once(weights: Any, batches: Any) -> Any:
        zeros = [jnp.zeros_like(weight) for weight in weights]
        (sums, _), losses = jax.lax.scan(add, (zeros, weights), (jnp.arange(PARTS), batches))
        return [w - 1e-3 * total for w, total in zip(weights, sums, strict=True)], losses

    compiled: Callable[[Any, Any], Any] = jax.jit(step_once, donate_argnums=0)
    return compiled


silent, reporting = step_of(False), step_of(True)


def train(is_slow: bool, clock: StepClock) -> None:
    step, state = reporting if is_slow else silent, [weights_of(FEATURES, 6)]

    def train_step(_: int) -> Any:
        state[0], losses = step(state[0], rows)
        return losses

    run_steps(clock, train_step)
