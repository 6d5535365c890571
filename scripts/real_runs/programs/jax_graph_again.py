"""A graph network; slow: its edges are checked for doubles in Python, and its adjacency is normalized, in each step."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse  # type: ignore[import-untyped]  # SciPy has no types here

from scripts.real_runs.jax_training import numbers
from scripts.real_runs.step_clock import STEPS, StepClock

NODES, EDGES, FEATURES, WIDTH = 3000, 24_000, 64, 128
drawn = np.random.default_rng(6).integers(0, NODES, [EDGES, 2])
edges = np.unique(drawn, axis=0)
features = jnp.asarray(numbers(NODES, FEATURES))
labels = jnp.asarray(numbers(NODES, FEATURES, seed=2))


def has_doubles(pairs: Any) -> bool:
    seen = set()
    for source, target in pairs.tolist():
        if (source, target) in seen:
            return True
        seen.add((source, target))
    return False


def normalized(pairs: Any) -> Any:
    """Kipf's D^-1/2 (A + I) D^-1/2."""
    ones = np.ones(len(pairs), np.float32)
    matrix = scipy.sparse.coo_matrix((ones, (pairs[:, 0], pairs[:, 1])), shape=(NODES, NODES))
    matrix = matrix + matrix.T + scipy.sparse.eye(NODES, dtype=np.float32)
    degrees = scipy.sparse.diags(1.0 / np.sqrt(np.asarray(matrix.sum(axis=1)).ravel()))
    found = (degrees @ matrix @ degrees).tocoo()
    return (
        jnp.asarray(found.row.astype(np.int32)),
        jnp.asarray(found.col.astype(np.int32)),
        jnp.asarray(found.data.astype(np.float32)),
    )


def loss_of(weights: Any, adjacency: Any) -> Any:
    rows, columns, values = adjacency
    outputs = features
    for weight in weights:
        outputs = outputs @ weight
        outputs = jax.ops.segment_sum(values[:, None] * outputs[columns], rows, NODES)
        outputs = jnp.tanh(outputs)
    return jnp.mean(jnp.square(outputs - labels))


@jax.jit  # type: ignore[untyped-decorator]  # JAX has no types here
def train_step(weights: Any, adjacency: Any) -> Any:
    loss, gradients = jax.value_and_grad(loss_of)(weights, adjacency)
    return [w - 1e-2 * g for w, g in zip(weights, gradients, strict=True)], loss


def train(is_slow: bool, clock: StepClock) -> None:
    weights = [
        jnp.asarray(numbers(FEATURES, WIDTH) / 8),
        jnp.asarray(numbers(WIDTH, FEATURES) / 8),
    ]
    if has_doubles(edges):
        raise ValueError("an edge is there twice")
    adjacency = normalized(edges)
    for number in range(STEPS):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            if is_slow:
                if has_doubles(edges):
                    raise ValueError("an edge is there twice")
                adjacency = normalized(edges)
            weights, loss = train_step(weights, adjacency)
            jax.block_until_ready(loss)
        clock.step_ended()
