"""Holds what programs of TensorFlow on a GPU share: a model of wide layers, its compiled step, and a loop over it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import squared_error

GPUS: Any = tf.config.list_physical_devices("GPU")


def sized(on_gpu: int, elsewhere: int) -> int:
    """A size that keeps a GPU busy for milliseconds, or a small one to try the program without a GPU."""
    return on_gpu if GPUS else elsewhere


WIDTH = sized(4096, 128)


def model_of(width: int, layers: int, features: int | None = None) -> tuple[Any, Any]:
    """A model of layers of one width, and its optimizer, which has no state. `features`: others than that of the input."""
    hidden = [tf.keras.layers.Dense(width, activation="tanh") for _ in range(layers)]
    model = tf.keras.Sequential([*hidden, tf.keras.layers.Dense(features or width)])
    model.build([None, features or width])
    return model, tf.keras.optimizers.SGD(1e-3)


class Patches(tf.keras.Model):  # type: ignore[misc]  # TensorFlow has no types here
    """The mean over patches of an image of what wide layers make of each: of numbers `[batch, side, side, 3]`."""

    def __init__(self, layers: int, patches: int, classes: int) -> None:
        super().__init__()
        self.patches, self.classes = patches, classes
        hidden = [tf.keras.layers.Dense(WIDTH, "tanh") for _ in range(layers)]
        self.parts = [*hidden, tf.keras.layers.Dense(classes)]

    def call(self, images: Any) -> Any:
        """What a batch of images is; float32 `[batch, classes]`."""
        _, height, width, colours = images.shape
        pixels = tf.cast(images, tf.float32)
        outputs = tf.reshape(pixels, [-1, height * width * colours // self.patches])
        for part in self.parts:
            outputs = part(outputs)
        return tf.reduce_mean(tf.reshape(outputs, [-1, self.patches, self.classes]), axis=1)


def step_of(
    model: Any, optimizer: Any, loss_of: Callable[[Any, Any], Any] = squared_error
) -> Callable[[Any], Any]:
    """A compiled step, which returns the loss. `loss_of`: of the model and the batch."""
    optimizer.build(model.trainable_variables)

    def train_step(batch: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(model, batch)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    compiled: Callable[[Any], Any] = tf.function(train_step)
    return compiled


def run_steps(clock: StepClock, step: Callable[[int], Any]) -> None:
    """Call `step` with the number of each step, and read the loss of every fourth.

    TensorFlow waits for all that it has queued on a GPU, also where the loss of an earlier step is read.
    """
    for number in range(STEPS):
        loss = step(number)
        if number % 4 == 3:
            float(loss)
        clock.step_ended()
