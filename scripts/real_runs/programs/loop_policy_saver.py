"""An agent that learns to play from frames; slow: every sixth step saves its policy as a `SavedModel`, to be tried elsewhere."""

from __future__ import annotations

import tempfile
from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

BATCH, SIDE, STACKED, ACTIONS, MEMORY, SAVED_EVERY = 192, 42, 4, 6, 512, 6

tf.config.threading.set_intra_op_parallelism_threads(1)
frames = tf.constant(numbers(MEMORY, SIDE, SIDE, STACKED))
moves = tf.random.stateless_uniform([MEMORY], [3, 3], 0, ACTIONS, tf.int32)
rewards = tf.constant(numbers(MEMORY, seed=5))


class QNetwork(tf.Module):  # type: ignore[misc]  # TensorFlow has no types here
    """Convolutions and dense layers that say what each action is worth."""

    def __init__(self) -> None:
        super().__init__()
        shapes = [(8, 8, STACKED, 16), (4, 4, 16, 32), (3, 3, 32, 32)]
        self.filters = [tf.Variable(numbers(*shape) * 0.05) for shape in shapes]
        self.dense = tf.Variable(numbers(6 * 6 * 32, 256) * 0.03)
        self.out = tf.Variable(numbers(256, ACTIONS) * 0.05)

    def __call__(self, states: Any) -> Any:
        for filters, stride in zip(self.filters, (4, 2, 1), strict=True):
            states = tf.nn.relu(tf.nn.conv2d(states, filters, stride, "SAME"))
        states = tf.nn.relu(tf.reshape(states, [-1, 6 * 6 * 32]) @ self.dense)
        return states @ self.out


class Policy(tf.Module):  # type: ignore[misc]  # TensorFlow has no types here
    """What a player needs: the best action, and one that is chance at times."""

    def __init__(self, network: QNetwork) -> None:
        super().__init__()
        self.network = network

    @tf.function(input_signature=[tf.TensorSpec([None, SIDE, SIDE, STACKED])])  # type: ignore[untyped-decorator]  # TensorFlow has no types here
    def action(self, states: Any) -> Any:
        return tf.argmax(self.network(states), axis=-1)

    @tf.function(input_signature=[tf.TensorSpec([None, SIDE, SIDE, STACKED])])  # type: ignore[untyped-decorator]  # TensorFlow has no types here
    def distribution(self, states: Any) -> Any:
        return tf.nn.softmax(self.network(states))


def train(is_slow: bool, clock: StepClock) -> None:
    network, target = QNetwork(), QNetwork()
    variables = network.trainable_variables
    optimizer = tf.keras.optimizers.RMSprop(1e-4)
    optimizer.build(variables)

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow has no types here
    def train_step() -> Any:
        """Learn from a sample of what is remembered; the target follows slowly."""
        rows = tf.random.uniform([BATCH], 0, MEMORY - 1, tf.int32)
        following = tf.reduce_max(target(tf.gather(frames, rows + 1)), axis=-1)
        wanted = tf.gather(rewards, rows) + 0.99 * following
        with tf.GradientTape() as tape:
            values = tf.gather(
                network(tf.gather(frames, rows)), tf.gather(moves, rows), batch_dims=1
            )
            loss = tf.reduce_mean(tf.square(values - tf.stop_gradient(wanted)))
        gradients = tape.gradient(loss, variables)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        for own, other in zip(target.trainable_variables, variables, strict=True):
            own.assign_add(0.01 * (other - own))
        return loss

    policy = Policy(network)
    with tempfile.TemporaryDirectory() as folder:
        for step in range(STEPS):
            train_step()
            if is_slow and step % SAVED_EVERY == SAVED_EVERY - 1:
                tf.saved_model.save(policy, f"{folder}/policy_{step}")
            clock.step_ended()
