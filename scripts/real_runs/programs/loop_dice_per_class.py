"""Pictures are cut into classes on two replicas; slow: the loss goes class by class and picture by picture, and a monitor waits."""

from __future__ import annotations

from typing import Any

import psutil
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import mirrored, numbers

BATCH, SIDE, CLASSES, FILTERS = 64, 16, 8, 32

strategy = mirrored(2)
pictures = numbers(BATCH * 4, SIDE, SIDE, 3)
labels = numbers(BATCH * 4, SIDE, SIDE, CLASSES, seed=2).argmax(-1).astype("int32")


def network_of() -> tuple[Any, Any]:
    with strategy.scope():
        layers = [
            tf.keras.layers.Conv2D(FILTERS, 3, padding="same", activation="relu") for _ in range(3)
        ]
        network = tf.keras.Sequential([*layers, tf.keras.layers.Conv2D(CLASSES, 1)])
        network.build([None, SIDE, SIDE, 3])
        optimizer = tf.keras.optimizers.Adam(1e-3)
        optimizer.build(network.trainable_variables)
    return network, optimizer


def dice_one_by_one(masks: Any, guesses: Any) -> Any:
    """One minus the overlap, mean over classes and pictures."""
    losses = []
    for mask, guess in zip(tf.unstack(masks), tf.unstack(guesses), strict=True):
        for name in range(CLASSES):
            shared = tf.reduce_sum(mask[..., name] * guess[..., name])
            total = tf.reduce_sum(mask[..., name]) + tf.reduce_sum(guess[..., name])
            losses.append(1.0 - (2.0 * shared + 1.0) / (total + 1.0))
    return tf.add_n(losses) / len(losses)


def dice(masks: Any, guesses: Any) -> Any:
    """One minus the overlap, mean over classes and pictures."""
    shared = tf.reduce_sum(masks * guesses, axis=[1, 2])
    total = tf.reduce_sum(masks, axis=[1, 2]) + tf.reduce_sum(guesses, axis=[1, 2])
    return tf.reduce_mean(1.0 - (2.0 * shared + 1.0) / (total + 1.0))


def train(is_slow: bool, clock: StepClock) -> None:
    network, optimizer = network_of()
    loss_of = dice_one_by_one if is_slow else dice
    loads = []

    def replica_step(images: Any, classes: Any) -> Any:
        masks = tf.one_hot(classes, CLASSES)
        with tf.GradientTape() as tape:
            loss = loss_of(masks, tf.nn.softmax(network(images, training=True)))
        gradients = tape.gradient(loss, network.trainable_variables)
        optimizer.apply_gradients(zip(gradients, network.trainable_variables, strict=True))
        return loss

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow has no types here
    def train_step(batch: Any) -> Any:
        losses = strategy.run(replica_step, args=batch)
        return strategy.reduce(tf.distribute.ReduceOp.MEAN, losses, axis=None)

    def note_load() -> None:
        """Keep how busy the machine is."""
        loads.append(psutil.cpu_percent(interval=0.006 if is_slow else None))

    dataset = tf.data.Dataset.from_tensor_slices((pictures, labels))
    dataset = dataset.batch(BATCH, drop_remainder=True).cache().repeat().prefetch(2)
    source = iter(strategy.experimental_distribute_dataset(dataset))
    for _ in range(STEPS):
        train_step(next(source))
        note_load()
        clock.step_ended()
