"""A policy learns from frames of a game on one device and keeps its latest selves as rivals; slow twice: (a) a rival is made after
each update by `clone_model`, not by a copy of the weights, (b) `prefetch` stands before the map that changes the frames.
"""

from __future__ import annotations

import os
from collections import deque
from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock, run_blocks
from scripts.real_runs.training import numbers

BATCH, SIDE, MOVES = 32, 56, 6

tf.config.threading.set_intra_op_parallelism_threads(1)
frames = (127 + 40 * numbers(BATCH * 6, SIDE, SIDE, 3)).clip(0, 255).astype("uint8")
moves = tf.random.stateless_uniform([BATCH * 6], [4, 2], 0, MOVES, tf.int32)


def changed(batch: Any, labels: Any) -> tuple[Any, Any]:
    """Frames in another light, from a place a little beside."""
    batch = tf.cast(batch, tf.float32) / 255
    batch = tf.image.resize(batch, [SIDE + 8, SIDE + 8])
    batch = tf.image.random_crop(batch, [BATCH, SIDE, SIDE, 3])
    batch = tf.image.random_contrast(batch, 0.8, 1.2)
    batch = tf.image.random_hue(batch, 0.1)
    batch = tf.image.random_saturation(batch, 0.8, 1.2)
    return tf.clip_by_value(batch, 0.0, 1.0), labels


def train(is_slow: bool, clock: StepClock) -> None:
    which = os.environ.get("WHICH", "both") if is_slow else ""
    does_clone, is_early = which in ("a", "both"), which in ("b", "both")
    dataset = tf.data.Dataset.from_tensor_slices((frames, moves)).cache().repeat()
    dataset = dataset.shuffle(BATCH * 6, seed=1).batch(BATCH, drop_remainder=True)
    if is_early:
        dataset = dataset.prefetch(4).map(changed)
    else:
        dataset = dataset.map(changed).prefetch(4)
    options = tf.data.Options()
    options.autotune.enabled = False
    dataset = dataset.with_options(options)
    model = tf.keras.Sequential(
        [
            tf.keras.Input([SIDE, SIDE, 3]),
            tf.keras.layers.Conv2D(24, 4, strides=2, activation="relu"),
            tf.keras.layers.Conv2D(48, 3, strides=2, activation="relu"),
            tf.keras.layers.Conv2D(48, 3, activation="relu"),
            tf.keras.layers.GlobalAveragePooling2D(),
            tf.keras.layers.Dense(MOVES),
        ]
    )
    optimizer = tf.keras.optimizers.Adam(1e-3)
    optimizer.build(model.trainable_variables)
    loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow has no types here
    def train_step(seen: Any, wanted: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(wanted, model(seen, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    rivals: deque[Any] = deque(maxlen=5)
    for _, (seen, wanted) in zip(range(STEPS), dataset, strict=False):
        train_step(seen, wanted)
        if does_clone:
            rival = tf.keras.models.clone_model(model)
            rival.set_weights(model.get_weights())
            rivals.append(rival)
        else:
            rivals.append(model.get_weights())
        clock.step_ended()


if __name__ == "__main__":
    run_blocks(train)
