"""An agent whose compiled step collects what it learns from; slow: environments of Python are moved one after the other."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

ENVIRONMENTS, MOVES, FRAMES, UNITS, ACTIONS, STATE = 128, 5, 4, 128, 3, 4
"""`FRAMES`: how often the equations are solved for one action."""

tf.config.threading.set_intra_op_parallelism_threads(1)


class CartPole:
    """A pole on a cart, by its equations of motion."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.reset()

    def reset(self) -> None:
        self.state = [self.random.uniform(-0.05, 0.05) for _ in range(STATE)]

    def step(self, action: int) -> tuple[list[float], float]:
        for _ in range(FRAMES):
            self.move(action)
        if abs(self.state[0]) > 2.4 or abs(self.state[2]) > 0.2:
            self.reset()
            return self.state, 0.0
        return self.state, 1.0

    def move(self, action: int) -> None:
        place, speed, angle, turning = self.state
        force = 10.0 * (action - 1)
        pull = (force + 0.05 * turning**2 * math.sin(angle)) / 1.1
        turned = (9.8 * math.sin(angle) - math.cos(angle) * pull) / (
            0.5 * (4.0 / 3.0 - 0.1 * math.cos(angle) ** 2 / 1.1)
        )
        moved = pull - 0.05 * turned * math.cos(angle) / 1.1
        speed, turning = speed + 0.02 * moved, turning + 0.02 * turned
        self.state = [place + 0.02 * speed, speed, angle + 0.02 * turning, turning]


class CartPoles:
    """As many poles, in arrays."""

    def __init__(self) -> None:
        self.states = numbers(ENVIRONMENTS, STATE) * np.float32(0.05)

    def step(self, actions: Any) -> tuple[Any, Any]:
        for _ in range(FRAMES):
            self.move(actions)
        is_over = (np.abs(self.states[:, 0]) > 2.4) | (np.abs(self.states[:, 2]) > 0.2)
        self.states[is_over] = 0.0
        return self.states.copy(), (~is_over).astype(np.float32)

    def move(self, actions: Any) -> None:
        place, speed, angle, turning = self.states.T
        pull = (10.0 * (actions - 1) + 0.05 * turning**2 * np.sin(angle)) / 1.1
        turned = (9.8 * np.sin(angle) - np.cos(angle) * pull) / (
            0.5 * (4.0 / 3.0 - 0.1 * np.cos(angle) ** 2 / 1.1)
        )
        moved = pull - 0.05 * turned * np.cos(angle) / 1.1
        speed, turning = speed + 0.02 * moved, turning + 0.02 * turned
        parts = [place + 0.02 * speed, speed, angle + 0.02 * turning, turning]
        self.states = np.stack(parts, axis=1).astype(np.float32)


def train(is_slow: bool, clock: StepClock) -> None:
    poles, all_poles = [CartPole(seed) for seed in range(ENVIRONMENTS)], CartPoles()

    def moved(actions: Any) -> tuple[Any, Any]:
        if not is_slow:
            return all_poles.step(actions)
        states, rewards = zip(*map(CartPole.step, poles, actions.tolist()), strict=True)
        return np.asarray(states, np.float32), np.asarray(rewards, np.float32)

    body = [tf.keras.layers.Dense(UNITS, activation="tanh") for _ in range(2)]
    network = tf.keras.Sequential([*body, tf.keras.layers.Dense(ACTIONS + 1)])
    network.build([None, STATE])
    optimizer = tf.keras.optimizers.Adam(1e-3)
    optimizer.build(network.trainable_variables)
    start = tf.Variable(numbers(ENVIRONMENTS, STATE) * 0.05, trainable=False)

    def collected() -> tuple[Any, Any, Any]:
        """What a few moves in all environments lead to: states, actions, rewards."""
        states = tf.TensorArray(tf.float32, MOVES)
        actions = tf.TensorArray(tf.int64, MOVES)
        rewards = tf.TensorArray(tf.float32, MOVES)
        state = start.read_value()
        for move in tf.range(MOVES):
            action = tf.random.categorical(network(state)[:, :ACTIONS], 1)[:, 0]
            states, actions = states.write(move, state), actions.write(move, action)
            state, reward = tf.numpy_function(moved, [action], [tf.float32, tf.float32])
            state = tf.ensure_shape(state, [ENVIRONMENTS, STATE])
            rewards = rewards.write(move, tf.ensure_shape(reward, [ENVIRONMENTS]))
        start.assign(state)
        return states.stack(), actions.stack(), rewards.stack()

    @tf.function  # type: ignore[untyped-decorator]
    def train_step() -> Any:
        states, actions, rewards = collected()
        returns = tf.cumsum(rewards, reverse=True)
        with tf.GradientTape() as tape:
            outputs = network(tf.reshape(states, [-1, STATE]))
            scores = tf.reshape(outputs[:, :ACTIONS], [MOVES, ENVIRONMENTS, ACTIONS])
            values = tf.reshape(outputs[:, ACTIONS], [MOVES, ENVIRONMENTS])
            surprise = tf.nn.sparse_softmax_cross_entropy_with_logits(actions, scores)
            better = returns - values
            loss = tf.reduce_mean(surprise * tf.stop_gradient(better) + tf.square(better))
        gradients = tape.gradient(loss, network.trainable_variables)
        optimizer.apply_gradients(zip(gradients, network.trainable_variables, strict=True))
        return loss

    for _ in range(STEPS):
        train_step()
        clock.step_ended()
