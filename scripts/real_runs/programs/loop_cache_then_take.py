"""A loop on one device over scans of cells in PNG files, of which a part is taken for a first look; slow: `take` stands after
`cache`, so that the cache is never read to its end, is thrown away with each epoch, and all files are decoded again; healthy:
`take` stands before it.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock, run_blocks

BATCH, SIDE, SCANS, TAKEN = 16, 160, 200, 96

folder = Path(tempfile.mkdtemp())
random = np.random.default_rng(3)
for number in range(SCANS):
    coarse = random.integers(0, 255, [20, 20, 3])
    scan = np.kron(coarse, np.ones([8, 8, 1])) + random.integers(0, 6, [SIDE, SIDE, 3])
    png = tf.io.encode_png(tf.constant(np.clip(scan, 0, 255), tf.uint8))
    (folder / f"{number:03}_{number % 5}.png").write_bytes(png.numpy())
paths = sorted(str(path) for path in folder.glob("*.png"))


def train(is_slow: bool, clock: StepClock) -> None:
    def decoded(path: Any) -> Any:
        scan = tf.io.decode_png(tf.io.read_file(path), channels=3)
        scan = tf.image.resize(tf.image.convert_image_dtype(scan, tf.float32), [64, 64])
        kind = tf.strings.to_number(tf.strings.substr(path, -5, 1), tf.int32)
        return scan, kind

    def changed(scans: Any, kinds: Any) -> Any:
        return tf.reverse(scans, [2]) if tf.random.uniform([]) < 0.5 else scans, kinds

    scans = tf.data.Dataset.from_tensor_slices(paths).map(decoded, num_parallel_calls=2)
    scans = scans.cache().take(TAKEN) if is_slow else scans.take(TAKEN).cache()
    dataset = scans.shuffle(TAKEN).repeat().batch(BATCH).map(changed).prefetch(2)

    model = tf.keras.Sequential(
        [
            tf.keras.layers.Conv2D(16, 3, strides=2, activation="relu"),
            tf.keras.layers.Conv2D(32, 3, strides=2, activation="relu"),
            tf.keras.layers.GlobalAveragePooling2D(),
            tf.keras.layers.Dense(5),
        ]
    )
    model.build([None, 64, 64, 3])
    optimizer = tf.keras.optimizers.Adam(1e-3)
    optimizer.build(model.trainable_variables)

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow has no types here
    def train_step(scans: Any, kinds: Any) -> Any:
        with tf.GradientTape() as tape:
            logits = model(scans, training=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(kinds, logits)
            loss = tf.reduce_mean(losses)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    for _, (scans, kinds) in zip(range(STEPS), dataset, strict=False):
        train_step(scans, kinds)
        clock.step_ended()


if __name__ == "__main__":
    run_blocks(train)
