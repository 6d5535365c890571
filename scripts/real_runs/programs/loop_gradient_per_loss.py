"""A detector with three losses; slow: a persistent tape is asked for the gradient of each loss, and the gradients are summed."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

BATCH, SIDE, FILTERS, CLASSES = 16, 96, (12, 16, 24), 8

tf.config.threading.set_intra_op_parallelism_threads(1)
cells = SIDE // 4
images = numbers(BATCH * 4, SIDE, SIDE, 3)
boxes = numbers(BATCH * 4, cells, cells, 4, seed=2)
classes = tf.random.stateless_uniform([BATCH * 4, cells, cells], [3, 9], 0, CLASSES, tf.int32)
objects = tf.cast(classes < 2, tf.float32)


class Detector(tf.keras.Model):  # type: ignore[misc]  # TensorFlow has no types here
    """A trunk of convolutions, and for each cell of the image a box, a class, and whether an object is there."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = [
            tf.keras.layers.Conv2D(filters, 3, stride, padding="same", activation="relu")
            for filters, stride in zip(FILTERS, (1, 2, 2), strict=True)
        ]
        self.heads = [tf.keras.layers.Conv2D(count, 1) for count in (4, CLASSES, 1)]

    def call(self, batch: Any) -> tuple[Any, ...]:
        for layer in self.trunk:
            batch = layer(batch)
        return tuple(head(batch) for head in self.heads)


def losses_of(outputs: tuple[Any, ...], truth: tuple[Any, ...]) -> list[Any]:
    places, scores, presence = outputs
    weights = truth[2]
    return [
        tf.reduce_mean(weights[..., None] * tf.abs(places - truth[0])),
        tf.reduce_mean(weights * tf.nn.sparse_softmax_cross_entropy_with_logits(truth[1], scores)),
        tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(weights, presence[..., 0])),
    ]


def train(is_slow: bool, clock: StepClock) -> None:
    dataset = tf.data.Dataset.from_tensor_slices((images, boxes, classes, objects)).batch(BATCH)
    model = Detector()
    model(images[:1])
    variables = model.trainable_variables
    optimizer = tf.keras.optimizers.Adam(1e-3)
    optimizer.build(variables)

    def summed(tape: tf.GradientTape, losses: list[Any]) -> list[Any]:
        """The gradients of all losses, each with its weight; a loss says nothing of the heads of others."""
        totals: list[Any] = [None] * len(variables)
        for weight, loss in zip((5.0, 1.0, 2.0), losses, strict=True):
            for place, part in enumerate(tape.gradient(loss, variables)):
                if part is not None:
                    before = totals[place]
                    totals[place] = weight * part if before is None else before + weight * part
        return totals

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow has no types here
    def train_step(batch: Any, *truth: Any) -> list[Any]:
        with tf.GradientTape(persistent=is_slow) as tape:
            losses = losses_of(model(batch, training=True), truth)
            total = 5.0 * losses[0] + losses[1] + 2.0 * losses[2]
        gradients = summed(tape, losses) if is_slow else tape.gradient(total, variables)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return losses

    source = iter(dataset.cache().repeat().prefetch(2))
    for _ in range(STEPS):
        train_step(*next(source))
        clock.step_ended()
