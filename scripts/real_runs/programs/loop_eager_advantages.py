"""An actor and critic learn from rollouts; slow: the advantages are summed backwards over the rollout by ops outside of the compiled step."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

TIME, WORLDS, SEEN, ACTIONS, DISCOUNT, TRACE = 48, 32, 64, 6, 0.99, 0.95

tf.config.threading.set_intra_op_parallelism_threads(1)
rng = np.random.default_rng(21)


class Agent(tf.keras.Model):  # type: ignore[misc]  # TensorFlow has no types here
    """Scores of actions and the value of what is seen."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = [tf.keras.layers.Dense(256, activation="tanh") for _ in range(2)]
        self.policy, self.critic = tf.keras.layers.Dense(ACTIONS), tf.keras.layers.Dense(1)

    def call(self, seen: Any) -> tuple[Any, Any]:
        for layer in self.hidden:
            seen = layer(seen)
        return self.policy(seen), self.critic(seen)[..., 0]


def advantages_in_ops(rewards: Any, values: Any, last: Any, goes_on: Any) -> Any:
    total, later = tf.zeros([WORLDS]), last
    advantages: list[Any] = []
    for time in reversed(range(TIME)):
        error = rewards[time] + DISCOUNT * later * goes_on[time] - values[time]
        total = error + DISCOUNT * TRACE * goes_on[time] * total
        later = values[time]
        advantages.insert(0, total)
    return tf.stack(advantages)


def advantages_in_numpy(rewards: Any, values: Any, last: Any, goes_on: Any) -> Any:
    later = np.concatenate([values[1:], last[None]])
    advantages = rewards + DISCOUNT * later * goes_on - values
    for time in reversed(range(TIME - 1)):
        advantages[time] += DISCOUNT * TRACE * goes_on[time] * advantages[time + 1]
    return advantages


class Worlds:
    """Rollouts as simulators in compiled code hand them over."""

    def __init__(self) -> None:
        self.seen = numbers(4, TIME + 1, WORLDS, SEEN)
        self.rewards = numbers(4, TIME, WORLDS, seed=5)
        self.goes_on = (rng.random([4, TIME, WORLDS]) > 0.02).astype(np.float32)

    def rollout(self, number: int) -> tuple[Any, Any, Any]:
        return tuple(part[number % 4] for part in (self.seen, self.rewards, self.goes_on))


def train(is_slow: bool, clock: StepClock) -> None:
    agent = Agent()
    agent(numbers(1, SEEN))
    variables = agent.trainable_variables
    optimizer = tf.keras.optimizers.Adam(3e-4)
    optimizer.build(variables)
    worlds = Worlds()

    @tf.function  # type: ignore[untyped-decorator]
    def judged(seen: Any) -> Any:
        logits, values = agent(seen)
        return tf.reshape(
            tf.random.categorical(tf.reshape(logits, [-1, ACTIONS]), 1), [TIME + 1, WORLDS]
        ), values

    @tf.function  # type: ignore[untyped-decorator]
    def train_step(seen: Any, actions: Any, advantages: Any, returns: Any) -> Any:
        with tf.GradientTape() as tape:
            logits, values = agent(seen)
            surprise = tf.nn.sparse_softmax_cross_entropy_with_logits(actions, logits)
            entropy = -tf.reduce_sum(tf.nn.softmax(logits) * tf.nn.log_softmax(logits), axis=-1)
            loss = tf.reduce_mean(
                surprise * advantages + 0.5 * tf.square(values - returns) - 0.01 * entropy
            )
        gradients = tape.gradient(loss, variables)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return loss

    for number in range(STEPS):
        seen, rewards, goes_on = worlds.rollout(number)
        seen = tf.constant(seen)
        actions, values = judged(seen)
        if is_slow:
            past = values[:-1]
            advantages = advantages_in_ops(rewards, past, values[-1], goes_on)
        else:
            past, last = values.numpy()[:-1], values.numpy()[-1]
            advantages = tf.constant(advantages_in_numpy(rewards, past, last, goes_on))
        train_step(seen[:-1], actions[:-1], advantages, advantages + past)
        clock.step_ended()
