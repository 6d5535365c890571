"""An ensemble of two networks, one on each device; slow: the second begins when the first has been updated, to save memory."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import mirrored, numbers

BATCH, SIDE, CHANNELS, CLASSES, MEMBERS = 48, 24, 16, 10, 2

mirrored(MEMBERS)
images = tf.constant(numbers(BATCH, SIDE, SIDE, 3))
labels = tf.random.stateless_uniform([BATCH], [5, 6], 0, CLASSES, tf.int32)


class Member(tf.Module):  # type: ignore[misc]  # TensorFlow has no types here
    """A small network of convolutions with weights of its own."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        shapes = [(3, CHANNELS), (CHANNELS, CHANNELS), (CHANNELS, 2 * CHANNELS)]
        self.filters = [
            tf.Variable(numbers(3, 3, *shape, seed=seed + place) * 0.1)
            for place, shape in enumerate(shapes)
        ]
        self.head = tf.Variable(numbers(2 * CHANNELS, CLASSES, seed=seed) * 0.1)

    def __call__(self, batch: Any) -> Any:
        for filters in self.filters:
            batch = tf.nn.relu(tf.nn.conv2d(batch, filters, 1, "SAME"))
        return tf.reduce_mean(batch, axis=[1, 2]) @ self.head


def train(is_slow: bool, clock: StepClock) -> None:
    members = []
    for number in range(MEMBERS):
        with tf.device(f"/CPU:{number}"):
            members.append(Member(seed=10 * number))

    def update(member: Member, rate: float) -> tuple[Any, list[Any]]:
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, member(images))
            loss = tf.reduce_mean(losses)
        variables = member.trainable_variables
        updates = [
            variable.assign_sub(rate * gradient)
            for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True)
        ]
        return loss, updates

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow has no types here
    def train_step() -> Any:
        losses: list[Any] = []
        done: list[Any] = []
        for number, member in enumerate(members):
            order: AbstractContextManager[Any] = (
                tf.control_dependencies(done) if is_slow else nullcontext()
            )
            with order, tf.device(f"/CPU:{number}"):
                loss, done = update(member, rate=0.01 * (number + 1))
            losses.append(loss)
        return tf.stack(losses)

    for _ in range(STEPS):
        train_step()
        clock.step_ended()
