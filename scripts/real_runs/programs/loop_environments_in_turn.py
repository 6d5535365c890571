"""A policy that plays in four environments, each a process; slow: each is asked for its answer before the next is told its action, so that they play in turn."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack
from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

PLAYERS, OBSERVED, ACTIONS, UNITS, OLD = 4, 12, 3, 640, 256

tf.config.threading.set_intra_op_parallelism_threads(1)

GAME = """
import json, math, sys, time
state = [0.1 * place for place in range(12)]
for line in sys.stdin:
    action = json.loads(line)
    time.sleep(0.0025)  # The simulator answers.
    state = [math.tanh(value + 0.1 * (action - 1) * math.cos(place)) for place, value in enumerate(state)]
    print(json.dumps([state, -abs(sum(state))]), flush=True)
"""


def policy() -> Any:
    layers = tf.keras.layers
    hidden = [layers.Dense(UNITS, activation="tanh") for _ in range(4)]
    return tf.keras.Sequential([tf.keras.Input([OBSERVED]), *hidden, layers.Dense(ACTIONS)])


def tell(game: Any, action: int) -> None:
    game.stdin.write(f"{action}\n")
    game.stdin.flush()


def play(games: Any, actions: Any, is_slow: bool) -> list[Any]:
    """What the environments answer to the actions."""
    answers = []
    if not is_slow:
        for game, action in zip(games, actions, strict=True):
            tell(game, action)
    for game, action in zip(games, actions, strict=True):
        if is_slow:
            tell(game, action)
        answers.append(json.loads(game.stdout.readline()))
    return answers


def train(is_slow: bool, clock: StepClock) -> None:
    model = policy()
    optimizer = tf.keras.optimizers.SGD(1e-3)
    optimizer.build(model.trainable_variables)

    @tf.function  # type: ignore[untyped-decorator]
    def act(states: Any) -> Any:
        return tf.random.categorical(model(states), 1)[:, 0]

    @tf.function  # type: ignore[untyped-decorator]
    def learn(states: Any, actions: Any, rewards: Any) -> Any:
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(actions, model(states))
            loss = tf.reduce_mean(losses * (rewards - tf.reduce_mean(rewards)))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    seen, done = numbers(OLD, OBSERVED), np.zeros(OLD, np.int64)
    gained = numbers(OLD, seed=3)
    states = np.zeros([PLAYERS, OBSERVED], np.float32)
    command = [sys.executable, "-S", "-c", GAME]
    with ExitStack() as stack:
        games = [
            stack.enter_context(
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
            for _ in range(PLAYERS)
        ]
        for number in range(STEPS):
            actions = act(tf.constant(states)).numpy()
            place = slice(number * PLAYERS, (number + 1) * PLAYERS)
            seen[place], done[place] = states, actions
            answers = play(games, actions, is_slow)
            states = np.array([state for state, _ in answers], np.float32)
            gained[place] = [reward for _, reward in answers]
            learn(tf.constant(seen), tf.constant(done), tf.constant(gained))
            clock.step_ended()
