"""Two replicas score molecules; slow: the launcher, made for one replica in a process, binds the process to one core."""

from __future__ import annotations

import os
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import mirrored, numbers, step_of

BATCH, ATOMS, FEATURES, UNITS, LAYERS = 192, 24, 64, 192, 4
"""`BATCH`: of both replicas."""

strategy = mirrored(2)
atoms = numbers(BATCH * 6, ATOMS, FEATURES)
bonds = tf.cast(numbers(BATCH * 6, ATOMS, ATOMS, seed=3) > 1.0, tf.float32)
solubilities = numbers(BATCH * 6, 1, seed=4)
all_cores = os.sched_getaffinity(0)


def bind(cores: AbstractSet[int]) -> None:
    """Let all threads of the process run on these cores, as they do if a launcher has bound it."""
    for thread in Path("/proc/self/task").iterdir():
        os.sched_setaffinity(int(thread.name), cores)


class Molecules(tf.keras.Model):  # type: ignore[misc]  # TensorFlow has no types here
    """Layers in which each atom reads the atoms that it is bound to."""

    def __init__(self) -> None:
        super().__init__()
        self.moves = [tf.keras.layers.Dense(UNITS, activation="relu") for _ in range(LAYERS)]
        self.head = tf.keras.layers.Dense(1)

    def call(self, inputs: Any) -> Any:
        states, links = inputs
        for move in self.moves:
            states = move(tf.concat([states, tf.matmul(links, states)], axis=2))
        return self.head(tf.reduce_sum(states, axis=1))


def loss_of(model: Any, batch: Any) -> Any:
    states, links, truth = batch
    return tf.reduce_mean(tf.square(model((states, links)) - truth))


def train(is_slow: bool, clock: StepClock) -> None:
    bind({min(all_cores)} if is_slow else all_cores)
    with strategy.scope():
        model = Molecules()
        model((atoms[:2], bonds[:2]))
        optimizer = tf.keras.optimizers.Adam(1e-3)
        optimizer.build(model.trainable_variables)
    train_step = step_of(strategy, model, optimizer, loss_of)
    dataset = tf.data.Dataset.from_tensor_slices((atoms, bonds, solubilities)).batch(BATCH)
    source = iter(strategy.experimental_distribute_dataset(dataset.cache().repeat().prefetch(2)))
    for _ in range(STEPS):
        float(train_step(next(source)))
        clock.step_ended()
    bind(all_cores)
