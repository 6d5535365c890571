"""JAX: a network on a graph learns which nodes are linked; slow twice: neighbours are summed by a matrix of 0 and 1, and pairs without a link are drawn in Python, one by one."""

from __future__ import annotations

import random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scripts.real_runs.step_clock import STEPS, StepClock

NODES, EDGES, LINKS, WIDTH, HIDDEN, PAIRS = 1000, 6000, 2048, 64, 512, 3072

rng = np.random.default_rng(107)
edges = rng.integers(0, NODES, [EDGES, 2], np.int32)
features = jnp.asarray(rng.standard_normal([NODES, WIDTH], np.float32))
neighbours: dict[int, set[int]] = {node: set() for node in range(NODES)}
for one, other in edges.tolist():
    neighbours[one].add(other)
matrix = np.zeros([NODES, NODES], np.float32)
np.add.at(matrix, (edges[:, 1], edges[:, 0]), 1)
codes = np.sort(edges[:, 0].astype(np.int64) * NODES + edges[:, 1])


def negatives_in_python() -> Any:
    pairs: list[tuple[int, int]] = []
    while len(pairs) < PAIRS:
        one, other = random.randrange(NODES), random.randrange(NODES)
        if one != other and other not in neighbours[one]:
            pairs.append((one, other))
    return np.array(pairs, np.int32)


def negatives() -> Any:
    """Pairs without a link; of the few that have one or are twice the same node, others take the place."""
    pairs = rng.integers(0, NODES, [PAIRS + 64, 2], np.int32)
    drawn = pairs[:, 0].astype(np.int64) * NODES + pairs[:, 1]
    place = np.minimum(np.searchsorted(codes, drawn), EDGES - 1)
    return pairs[(codes[place] != drawn) & (pairs[:, 0] != pairs[:, 1])][:PAIRS]


def loss_of(params: Any, links: Any, others: Any, summed: Any) -> Any:
    first, *rounds = params
    hidden = jax.nn.gelu(features @ first[0]) @ first[1]
    for own, near in rounds:
        hidden = jnp.tanh(hidden @ own + summed(hidden) @ near)

    def score(pairs: Any) -> Any:
        return jnp.sum(hidden[pairs[:, 0]] * hidden[pairs[:, 1]], axis=1)

    return jnp.mean(jax.nn.softplus(-score(links))) + jnp.mean(jax.nn.softplus(score(others)))


def train(is_slow: bool, clock: StepClock) -> None:
    dense = jnp.asarray(matrix)
    order = np.argsort(edges[:, 1], kind="stable")
    source, target = jnp.asarray(edges[order, 0]), jnp.asarray(edges[order, 1])

    def by_matrix(hidden: Any) -> Any:
        return dense @ hidden

    def by_edges(hidden: Any) -> Any:
        return jax.ops.segment_sum(hidden[source], target, NODES, indices_are_sorted=True)

    def update(params: Any, links: Any, others: Any) -> Any:
        summed = by_matrix if is_slow else by_edges
        loss, slopes = jax.value_and_grad(loss_of)(params, links, others, summed)
        return jax.tree.map(lambda value, slope: value - 1e-2 * slope, params, slopes), loss

    step = jax.jit(update)
    shapes = [((WIDTH, HIDDEN), (HIDDEN, WIDTH)), *[((WIDTH, WIDTH), (WIDTH, WIDTH))] * 2]
    params = [
        tuple(jnp.asarray(rng.standard_normal(shape) / 16, jnp.float32) for shape in pair)
        for pair in shapes
    ]
    for number in range(STEPS):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            links = edges[number % 2 * LINKS : (number % 2 + 1) * LINKS]
            others = negatives_in_python() if is_slow else negatives()
            params, loss = step(params, links, others)
            loss.block_until_ready()
        clock.step_ended()
