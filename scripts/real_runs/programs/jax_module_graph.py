"""JAX: modules are objects with variables, as in Flax NNX; slow: each step takes the objects apart and puts them together again in Python."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, WIDTH, BLOCKS = 128, 64, 28

rng = np.random.default_rng(43)


class Variable:
    """Holds one array that training changes, and what is known of it."""

    def __init__(self, value: Any, **metadata: Any) -> None:
        self.value, self.metadata = value, metadata


class Module:
    """Finds its variables and modules by their attributes."""

    def children(self) -> Iterator[tuple[str, Any]]:
        for name, value in sorted(vars(self).items()):
            if isinstance(value, list):
                yield from ((f"{name}.{place}", item) for place, item in enumerate(value))
            else:
                yield name, value


class Linear(Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        self.kernel = Variable(
            (rng.standard_normal([inputs, outputs]) / 16).astype(np.float32), axes="io"
        )
        self.bias = Variable(np.zeros(outputs, np.float32), axes="o")

    def __call__(self, rows: Any) -> Any:
        return rows @ self.kernel.value + self.bias.value


class Norm(Module):
    def __init__(self, width: int) -> None:
        self.scale = Variable(np.ones(width, np.float32), axes="o")
        self.shift = Variable(np.zeros(width, np.float32), axes="o")

    def __call__(self, rows: Any) -> Any:
        centred = rows - jnp.mean(rows, axis=1, keepdims=True)
        return self.scale.value * centred / (jnp.std(rows, axis=1, keepdims=True) + 1e-3) + (
            self.shift.value
        )


class Block(Module):
    def __init__(self, width: int) -> None:
        self.norm, self.up, self.down = Norm(width), Linear(width, width), Linear(width, width)

    def __call__(self, rows: Any) -> Any:
        return rows + self.down(jax.nn.silu(self.up(self.norm(rows))))


class Network(Module):
    def __init__(self, width: int, blocks: int) -> None:
        self.blocks = [Block(width) for _ in range(blocks)]
        self.last = Linear(width, width)

    def __call__(self, rows: Any) -> Any:
        for block in self.blocks:
            rows = block(rows)
        return self.last(rows)


class Graph(NamedTuple):
    """What a module is without its arrays: the kind of it, and its parts by name."""

    kind: type
    parts: tuple[tuple[str, Any], ...]


def split(module: Module) -> tuple[Graph, dict[tuple[str, ...], Any]]:
    """The graph of a module, and its arrays by path; what is met again keeps the place where it was met first."""
    state: dict[tuple[str, ...], Any] = {}
    seen: dict[int, tuple[str, ...]] = {}

    def taken_apart(node: Any, path: tuple[str, ...]) -> Any:
        if id(node) in seen:
            return seen[id(node)]
        seen[id(node)] = path
        if isinstance(node, Variable):
            state[path] = node.value
            return frozenset(node.metadata.items())
        parts = [(name, taken_apart(part, (*path, name))) for name, part in node.children()]
        return Graph(type(node), tuple(parts))

    graph = taken_apart(module, ())
    return graph, dict(sorted(state.items()))


def merge(graph: Graph, state: Any) -> Any:
    """Modules with these arrays."""
    made: dict[tuple[str, ...], Any] = {}

    def put_together(part: Any, path: tuple[str, ...]) -> Any:
        if isinstance(part, tuple) and not isinstance(part, Graph):
            return made[part]
        if isinstance(part, frozenset):
            made[path] = Variable(state[path], **dict(part))
            return made[path]
        made[path] = module = object.__new__(part.kind)
        for name, below in part.parts:
            attribute, _, place = name.partition(".")
            child = put_together(below, (*path, name))
            if place:
                vars(module).setdefault(attribute, []).append(child)
            else:
                setattr(module, attribute, child)
        return module

    return put_together(graph, ())


class Momentum(Module):
    """An optimizer that keeps the network and a copy of it for the mean of its slopes."""

    def __init__(self, network: Network) -> None:
        graph, state = split(network)
        self.network = network
        self.means = merge(graph, {path: np.zeros_like(value) for path, value in state.items()})


def update(graph: Graph, state: Any, rows: Any, labels: Any) -> Any:
    optimizer = merge(graph, state)
    network, values = split(optimizer.network)

    def loss_of(values: Any) -> Any:
        return jnp.mean(jnp.square(merge(network, values)(rows) - labels))

    slopes = jax.grad(loss_of)(values)
    _, means = split(optimizer.means)
    means = {path: 0.9 * mean + slopes[path] for path, mean in means.items()}
    values = {path: value - 1e-3 * means[path] for path, value in values.items()}
    optimizer.network, optimizer.means = merge(network, values), merge(network, means)
    return split(optimizer)[1]


step = jax.jit(update, static_argnums=0)


def train(is_slow: bool, clock: StepClock) -> None:
    optimizer = Momentum(Network(WIDTH, BLOCKS))
    data = rng.standard_normal([8, 2, BATCH, WIDTH]).astype(np.float32)
    graph, state = split(optimizer)
    for number in range(STEPS):
        rows, labels = data[number % len(data)]
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            if is_slow:
                graph, state = split(optimizer)
            state = step(graph, state, rows, labels)
            if is_slow:
                optimizer = merge(graph, state)
            jax.block_until_ready(state)
        clock.step_ended()
    merge(graph, state)
