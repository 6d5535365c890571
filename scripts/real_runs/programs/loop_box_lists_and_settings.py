"""A detector of objects; slow twice: boxes are a list of tensors, whose length traces the step again after every sixth step, and the settings are read from their file in each step."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tomllib

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

PICTURES, SIDE, MOST, APART = 8, 96, 24, 6

tf.config.threading.set_intra_op_parallelism_threads(1)
rng = np.random.default_rng(83)
pictures = tf.constant(numbers(PICTURES, SIDE, SIDE, 3))
corners = rng.uniform(0, 0.6, [MOST, 2]).astype(np.float32)
boxes = np.concatenate([corners, corners + 0.3], axis=1)


def settings_file(folder: Path) -> Path:
    """Settings as an experiment has them, of which the loop needs a few."""
    path = folder / "settings.toml"
    parts = [
        f"[augmentation.stage{number}]\nname = 'stage {number}'\nscale = [0.8, 1.25]\nflip = true\nshare = 0.{number}1"
        for number in range(1, 120)
    ]
    path.write_text("[training]\nrate = 1e-3\nsmooth = 0.1\n\n" + "\n\n".join(parts), "utf-8")
    return path


def detector() -> Any:
    layers = tf.keras.layers
    inputs = tf.keras.Input([SIDE, SIDE, 3])
    hidden = layers.Conv2D(16, 3, strides=2, padding="same", activation="relu")(inputs)
    for filters in (32, 48):
        hidden = layers.Conv2D(filters, 3, padding="same", activation="relu")(hidden)
    return tf.keras.Model(inputs, layers.Conv2D(4, 1)(hidden))


def train(is_slow: bool, clock: StepClock) -> None:
    model = detector()
    optimizer = tf.keras.optimizers.SGD(1e-3)
    optimizer.build(model.trainable_variables)

    def loss_of(found: Any, box: Any, is_there: Any, smooth: Any) -> Any:
        places = tf.zeros([tf.shape(box)[0]], tf.int32)
        crops = tf.image.crop_and_resize(found, box, places, [4, 4])
        errors = tf.abs(tf.reduce_mean(crops, axis=[1, 2]) - box)
        return tf.reduce_sum(tf.maximum(errors - smooth, 0.0) * is_there) / tf.reduce_sum(is_there)

    def train_step(batch: Any, box: Any, is_there: Any, smooth: Any) -> Any:
        if isinstance(box, list):
            box = tf.stack(box)
        with tf.GradientTape() as tape:
            loss = loss_of(model(batch, training=True), box, is_there, smooth)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    step = tf.function(train_step, reduce_retracing=True)
    with tempfile.TemporaryDirectory() as folder:
        path = settings_file(Path(folder))
        settings = tomllib.loads(path.read_text("utf-8"))
        for number in range(STEPS):
            if is_slow:
                # "So that I can change the rate while it trains."
                settings = tomllib.loads(path.read_text("utf-8"))
            smooth = tf.constant(settings["training"]["smooth"])
            count = 6 + number // APART
            if is_slow:
                step(pictures, [tf.constant(box) for box in boxes[:count]], tf.ones([1, 1]), smooth)
            else:
                is_there = (np.arange(MOST) < count).astype(np.float32)[:, None]
                step(pictures, tf.constant(boxes), tf.constant(is_there), smooth)
            clock.step_ended()
