"""An agent learns from what a sampler in another thread draws; slow: the loop looks every ten milliseconds whether the sample is there."""

from __future__ import annotations

import queue
import threading
import time
from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

BATCH, STATE, ACTIONS, MEMORY, UNITS = 512, 64, 4, 20_000, 640

tf.config.threading.set_intra_op_parallelism_threads(1)


class Sampler(threading.Thread):
    """Keeps transitions, and answers requests for some of them."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.states, self.rewards = numbers(MEMORY + 1, STATE), numbers(MEMORY, seed=4)
        self.actions = np.random.default_rng(2).integers(0, ACTIONS, MEMORY, np.int32)
        self.requests: queue.Queue[int] = queue.Queue()
        self.samples: queue.Queue[Any] = queue.Queue()

    def run(self) -> None:
        rng = np.random.default_rng(5)
        while size := self.requests.get():
            rows = rng.integers(0, MEMORY, size)
            parts = self.states[rows], self.actions[rows], self.rewards[rows], self.states[rows + 1]
            self.samples.put(tuple(map(tf.constant, parts)))


def sample_of(sampler: Sampler, is_slow: bool) -> Any:
    sampler.requests.put(BATCH)
    if is_slow:
        while sampler.samples.empty():
            time.sleep(0.01)
    return sampler.samples.get()


def q_network() -> Any:
    layers = [tf.keras.layers.Dense(UNITS, activation="relu") for _ in range(3)]
    network = tf.keras.Sequential([*layers, tf.keras.layers.Dense(ACTIONS)])
    network.build([None, STATE])
    return network


def train(is_slow: bool, clock: StepClock) -> None:
    network, target = q_network(), q_network()
    variables = network.trainable_variables
    optimizer = tf.keras.optimizers.SGD(1e-4)
    optimizer.build(variables)

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow has no types here
    def train_step(states: Any, actions: Any, rewards: Any, following: Any) -> Any:
        wanted = rewards + 0.99 * tf.reduce_max(target(following), axis=-1)
        with tf.GradientTape() as tape:
            values = tf.gather(network(states), actions, batch_dims=1)
            loss = tf.reduce_mean(tf.square(values - wanted))
        gradients = tape.gradient(loss, variables)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return loss

    sampler = Sampler()
    sampler.start()
    for _ in range(STEPS):
        train_step(*sample_of(sampler, is_slow))
        clock.step_ended()
    sampler.requests.put(0)
