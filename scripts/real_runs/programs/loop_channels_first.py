"""A residual network that was ported from another library; slow: its tensors have the channels first, so that each convolution transposes them."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

BATCH, SIDE, CHANNELS, BLOCKS, CLASSES = 16, 40, 16, 4, 10

tf.config.threading.set_intra_op_parallelism_threads(1)
photographs = numbers(BATCH * 4, SIDE, SIDE, 3)
kinds = tf.random.stateless_uniform([BATCH * 4], [8, 2], 0, CLASSES, tf.int32)


class Convolution(tf.Module):  # type: ignore[misc]  # TensorFlow has no types here
    """A convolution and its normalization, on rows with the channels first or last."""

    def __init__(self, inputs: int, seed: int, *, first: bool) -> None:
        super().__init__()
        self.first = first
        self.kernel = tf.Variable(0.1 * numbers(3, 3, inputs, CHANNELS, seed=seed))
        shape = [CHANNELS, 1, 1] if first else [CHANNELS]
        self.scale, self.shift = tf.Variable(tf.ones(shape)), tf.Variable(tf.zeros(shape))

    def __call__(self, rows: Any) -> Any:
        if self.first:
            # The convolution of the CPU takes channels last.
            rows = tf.transpose(rows, [0, 2, 3, 1])
        rows = tf.nn.conv2d(rows, self.kernel, 1, "SAME")
        if self.first:
            rows = tf.transpose(rows, [0, 3, 1, 2])
        return rows * self.scale + self.shift


class Network(tf.Module):  # type: ignore[misc]  # TensorFlow has no types here
    """A stem, residual blocks and a classifier."""

    def __init__(self, *, first: bool) -> None:
        super().__init__()
        self.first = first
        self.stem = Convolution(3, 1, first=first)
        self.blocks = [Convolution(CHANNELS, 2 + place, first=first) for place in range(BLOCKS)]
        self.head = tf.Variable(0.1 * numbers(CHANNELS, CLASSES, seed=99))

    def __call__(self, rows: Any) -> Any:
        if self.first:
            rows = tf.transpose(rows, [0, 3, 1, 2])
        rows = tf.nn.relu(self.stem(rows))
        for block in self.blocks:
            rows = rows + tf.nn.relu(block(rows))
        return tf.reduce_mean(rows, axis=[2, 3] if self.first else [1, 2]) @ self.head


def train(is_slow: bool, clock: StepClock) -> None:
    network = Network(first=is_slow)
    variables = network.trainable_variables
    optimizer = tf.keras.optimizers.SGD(1e-2, momentum=0.9)
    optimizer.build(variables)

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow has no types here
    def train_step(batch: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            logits = network(batch)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            loss = tf.reduce_mean(losses)
        gradients = tape.gradient(loss, variables)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return loss

    dataset = tf.data.Dataset.from_tensor_slices((photographs, kinds)).batch(BATCH)
    for batch, labels in dataset.cache().repeat().prefetch(2).take(STEPS):
        train_step(batch, labels)
        clock.step_ended()
