"""A loop on two replicas whose batches are always ready; slow: the threads that augment them take the cores of the replicas."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import mirrored, numbers

BATCH, SIDE, CHANNELS, WORKERS = 32, 32, 24, 2

strategy = mirrored(2)
images = numbers(BATCH * 6, SIDE, SIDE, 3)


class Denoiser(tf.Module):  # type: ignore[misc]  # TensorFlow has no types here
    """Convolutions that take noise out of images."""

    def __init__(self) -> None:
        super().__init__()
        sizes = [3, CHANNELS, CHANNELS, 3]
        self.filters = [
            tf.Variable(numbers(3, 3, before, after, seed=place) * 0.1)
            for place, (before, after) in enumerate(pairwise(sizes))
        ]

    def __call__(self, batch: Any) -> Any:
        for filters in self.filters[:-1]:
            batch = tf.nn.relu(tf.nn.conv2d(batch, filters, 1, "SAME"))
        return tf.nn.conv2d(batch, self.filters[-1], 1, "SAME")


def augmented(batch: Any) -> Any:
    """Images with other colours and a larger size, cut to the old one."""
    batch = tf.image.random_hue(tf.image.random_contrast(batch, 0.8, 1.2), 0.1)
    batch = tf.image.resize(batch, [SIDE * 6, SIDE * 6], "bicubic")
    return tf.image.random_crop(batch, [BATCH, SIDE, SIDE, 3])


def train(is_slow: bool, clock: StepClock) -> None:
    dataset = tf.data.Dataset.from_tensor_slices(images).batch(BATCH, drop_remainder=True)
    if is_slow:
        dataset = dataset.cache().repeat().map(augmented, num_parallel_calls=WORKERS)
    else:
        dataset = dataset.map(augmented, num_parallel_calls=WORKERS).cache().repeat()
    with strategy.scope():
        model = Denoiser()
        optimizer = tf.keras.optimizers.SGD(0.01)
        optimizer.build(model.trainable_variables)

    def replica_step(clean: Any) -> Any:
        noise = tf.random.normal(tf.shape(clean))
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(clean + noise) - clean))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow has no types here
    def train_step(batch: Any) -> Any:
        losses = strategy.run(replica_step, args=(batch,))
        return strategy.reduce(tf.distribute.ReduceOp.MEAN, losses, axis=None)

    source = iter(strategy.experimental_distribute_dataset(dataset.prefetch(8)))
    for _ in range(STEPS):
        train_step(next(source))
        clock.step_ended()
