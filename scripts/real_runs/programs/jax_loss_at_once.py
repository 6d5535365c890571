"""JAX: batches come from a feature store, which answers after 8 ms; slow: the loss is read at once, so that no batch is fetched meanwhile."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from scripts.real_runs.step_clock import STEPS, StepClock, run_blocks

DEVICES, BATCH, WIDTH, LAYERS, ANSWER_SECONDS = 4, 128, 512, 4, 0.008

rng = np.random.default_rng(19)


def serve(connection: Connection) -> None:
    rows = np.random.default_rng(23).standard_normal([BATCH, WIDTH]).astype(np.float32)
    while connection.recv() is not None:
        time.sleep(ANSWER_SECONDS)
        connection.send_bytes(rows.tobytes())


@contextmanager
def feature_store() -> Iterator[Connection]:
    """A connection to a process that answers with features."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs,))
    process.start()
    try:
        yield ours
    finally:
        ours.send(None)
        process.join()


def features(store: Connection, keys: list[int]) -> Any:
    store.send(keys)
    return np.frombuffer(store.recv_bytes(), np.float32).reshape(BATCH, WIDTH)


def loss_of(weights: Any, rows: Any) -> Any:
    def layer(hidden: Any, weight: Any) -> Any:
        return jax.nn.silu(hidden @ weight), None

    outputs, _ = jax.lax.scan(layer, rows, weights)
    return jnp.mean(jnp.square(outputs - rows))


def update(weights: Any, rows: Any) -> Any:
    loss, gradients = jax.value_and_grad(loss_of)(weights, rows)
    return weights - 1e-3 * gradients, loss


def train(is_slow: bool, clock: StepClock) -> None:
    mesh = Mesh(np.array(jax.devices()), ("data",))
    by_row = NamedSharding(mesh, PartitionSpec("data"))
    everywhere = NamedSharding(mesh, PartitionSpec())
    step = jax.jit(update, donate_argnums=0, out_shardings=everywhere)
    start = (rng.standard_normal([LAYERS, WIDTH, WIDTH]) / 30).astype(np.float32)
    weights, before, losses = jax.device_put(start, everywhere), None, []
    with feature_store() as store:
        for number in range(STEPS):
            with jax.profiler.StepTraceAnnotation("train", step_num=number):
                keys = [number * BATCH + row for row in range(BATCH)]
                rows = jax.device_put(features(store, keys), by_row)
                weights, loss = step(weights, rows)
                if is_slow:
                    losses.append(float(loss))
                elif before is not None:
                    losses.append(float(before))
                before = loss
            clock.step_ended()


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", DEVICES)
    run_blocks(train)
