"""Soft actor and critics with a replay memory; slow: a thread that samples the stack of the loop with its variables, to find what is slow, was left on."""

from __future__ import annotations

import sys
import threading
import traceback
from collections import Counter
from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

BATCH, KEPT, STATE, ACTION, UNITS, SECONDS = 1024, 20_000, 48, 8, 320, 0.001

tf.config.threading.set_intra_op_parallelism_threads(1)
memory = {
    "state": numbers(KEPT, STATE),
    "action": numbers(KEPT, ACTION, seed=2),
    "reward": numbers(KEPT, 1, seed=3),
    "following": numbers(KEPT, STATE, seed=4),
}


class Sampler(threading.Thread):
    """Counts where the loop is and what it holds, many times a second."""

    def __init__(self) -> None:
        super().__init__(name="sampler", daemon=True)
        self.counts, self.is_over = Counter[str](), threading.Event()

    def run(self) -> None:
        while not self.is_over.wait(SECONDS):
            frame = sys._current_frames()[threading.main_thread().ident or 0]
            stack = traceback.walk_stack(frame)
            found = traceback.StackSummary.extract(stack, capture_locals=True)
            self.counts["".join(found.format())] += 1


def network(inputs: int, outputs: int) -> Any:
    layers = [tf.keras.layers.Dense(UNITS, activation="relu") for _ in range(2)]
    return tf.keras.Sequential([tf.keras.Input([inputs]), *layers, tf.keras.layers.Dense(outputs)])


class Agent:
    def __init__(self) -> None:
        self.actor, self.critic = network(STATE, ACTION), network(STATE + ACTION, 1)
        self.target = network(STATE + ACTION, 1)
        self.optimizers = [tf.keras.optimizers.Adam(3e-4) for _ in range(2)]
        self.train_critic = tf.function(self.critic_step)
        self.train_actor = tf.function(self.actor_step)
        self.follow = tf.function(self.target_step)

    def critic_step(self, state: Any, action: Any, reward: Any, following: Any) -> None:
        ahead = tf.concat([following, tf.tanh(self.actor(following))], axis=1)
        wanted = reward + 0.99 * self.target(ahead)
        with tf.GradientTape() as tape:
            guess = self.critic(tf.concat([state, action], axis=1))
            loss = tf.reduce_mean(tf.square(guess - wanted))
        self.apply(0, self.critic, tape, loss)

    def actor_step(self, state: Any) -> None:
        with tf.GradientTape() as tape:
            action = tf.tanh(self.actor(state))
            loss = -tf.reduce_mean(self.critic(tf.concat([state, action], axis=1)))
        self.apply(1, self.actor, tape, loss)

    def target_step(self) -> None:
        for slow, fast in zip(self.target.variables, self.critic.variables, strict=True):
            slow.assign_add(0.005 * (tf.convert_to_tensor(fast) - slow))

    def apply(self, which: int, model: Any, tape: Any, loss: Any) -> None:
        variables = model.trainable_variables
        self.optimizers[which].apply(tape.gradient(loss, variables), variables)


def train(is_slow: bool, clock: StepClock) -> None:
    agent, sampler, chance = Agent(), Sampler(), np.random.default_rng(5)
    for number in range(STEPS):
        if is_slow and number == 1:
            sampler.start()
        drawn = chance.integers(0, KEPT, BATCH)
        batch = {name: tf.constant(values[drawn]) for name, values in memory.items()}
        agent.train_critic(**batch)
        agent.train_actor(batch["state"])
        agent.follow()
        clock.step_ended()
    sampler.is_over.set()
