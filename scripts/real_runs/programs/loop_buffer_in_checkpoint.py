"""Digits on two replicas, with a checkpoint after every sixth step; slow: it holds the iterator, too, and with it the buffer that shuffles."""

from __future__ import annotations

import tempfile
from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock, run_blocks
from scripts.real_runs.training import mirrored, numbers, step_of

BATCH, SIDE, KINDS, BUFFER, EVERY = 96, 28, 10, 3_000, 6
"""`BATCH`: of one replica."""

strategy = mirrored(2)
digits = numbers(BUFFER * 2, SIDE, SIDE, 1)
kinds = tf.random.stateless_uniform([BUFFER * 2], [3, 8], 0, KINDS, tf.int32)


def network() -> Any:
    filters = [
        tf.keras.layers.Conv2D(count, 3, 2, padding="same", activation="relu") for count in (24, 48)
    ]
    hidden = tf.keras.layers.Dense(96, activation="relu")
    layers = [*filters, tf.keras.layers.Flatten(), hidden, tf.keras.layers.Dense(KINDS)]
    return tf.keras.Sequential(layers)


def loss_of(model: Any, batch: Any) -> Any:
    images, labels = batch
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, model(images, training=True))
    return tf.reduce_mean(losses)


def train(is_slow: bool, clock: StepClock) -> None:
    with strategy.scope():
        model = network()
        model.build([None, SIDE, SIDE, 1])
        optimizer = tf.keras.optimizers.SGD(0.01)
        optimizer.build(model.trainable_variables)
    dataset = tf.data.Dataset.from_tensor_slices((digits, kinds)).repeat().shuffle(BUFFER)
    source = iter(dataset.batch(BATCH, drop_remainder=True).prefetch(4))
    # "So that a run that was stopped goes on where it was in the data."
    more = {"batches": source} if is_slow else {}
    checkpoint = tf.train.Checkpoint(weights=model.trainable_variables, **more)
    manager = tf.train.CheckpointManager(checkpoint, tempfile.mkdtemp(), max_to_keep=2)
    train_step = step_of(strategy, model, optimizer, loss_of)
    for step in range(STEPS):
        batches = strategy.experimental_distribute_values_from_function(lambda _: next(source))
        float(train_step(batches))
        if step % EVERY == EVERY - 1:
            manager.save()
        clock.step_ended()


if __name__ == "__main__":
    # The first run of a process takes longer, and the first that is recorded, too.
    with tf.profiler.experimental.Profile(tempfile.mkdtemp()):
        train(False, StepClock())
    run_blocks(train)
