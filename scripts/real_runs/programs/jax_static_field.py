"""JAX: a trainer with epochs of six steps, without step markers; slow: the epoch is a static field of its state, so that each epoch compiles."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from scripts.real_runs.step_clock import STEPS, StepClock

DEVICES, BATCH, CHANNELS, WIDTH, EPOCH_STEPS = 4, 1024, 64, 768, 6

jax.config.update("jax_num_cpu_devices", DEVICES)
mesh = Mesh(np.array(jax.devices()), ("data",))
by_row = NamedSharding(mesh, PartitionSpec("data"))
everywhere = NamedSharding(mesh, PartitionSpec())
rng = np.random.default_rng(7)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class StaticState:
    params: Any
    momentum: Any
    epoch: int = field(metadata={"static": True})


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State:
    params: Any
    momentum: Any
    epoch: Any


def forward(params: Any, rows: Any) -> Any:
    hidden = jnp.tanh(rows @ params["encode"])
    return jnp.tanh(hidden @ params["middle"]) @ params["decode"]


def reconstruction(params: Any, rows: Any) -> Any:
    return jnp.mean(jnp.square(forward(params, rows) - rows))


def descend(state: Any, rows: Any) -> Any:
    loss, gradients = jax.value_and_grad(reconstruction)(state.params, rows)
    rate = 1e-2 / (1.0 + state.epoch)
    momentum = jax.tree.map(lambda old, new: 0.9 * old + new, state.momentum, gradients)
    params = jax.tree.map(lambda value, change: value - rate * change, state.params, momentum)
    return replace(state, params=params, momentum=momentum), loss


class Trainer:
    def __init__(self, kind: type[Any], first_epoch: int) -> None:
        params = {
            "encode": rng.standard_normal([CHANNELS, WIDTH]) / 8,
            "middle": rng.standard_normal([WIDTH, WIDTH]) / 25,
            "decode": rng.standard_normal([WIDTH, CHANNELS]) / 25,
        }
        params = jax.device_put(jax.tree.map(np.float32, params), everywhere)
        self.state = kind(params, jax.tree.map(jnp.zeros_like, params), first_epoch)
        self.step = jax.jit(descend)
        self.losses: list[float] = []

    def fit(self, batches: Any, epochs: range, clock: StepClock) -> None:
        for epoch in epochs:
            self.state = replace(self.state, epoch=epoch)
            for rows in itertools.islice(batches, EPOCH_STEPS):
                self.state, loss = self.step(self.state, jax.device_put(rows, by_row))
                self.losses.append(float(loss))
                clock.step_ended()


runs = itertools.count()


def train(is_slow: bool, clock: StepClock) -> None:
    # Each run counts on from the one before, for what that has compiled would be found again.
    epoch = next(runs) * STEPS
    trainer = Trainer(StaticState if is_slow else State, epoch)
    data = rng.standard_normal([6, BATCH, CHANNELS]).astype(np.float32)
    trainer.fit(itertools.cycle(data), range(epoch, epoch + STEPS // EPOCH_STEPS), clock)
