"""Style transfer; slow twice: each step computes the style of the same painting again, and pandas writes the whole log anew."""

from __future__ import annotations

import csv
import tempfile
from pathlib import Path
from typing import Any

import pandas as pd
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

SIDE, FILTERS, EARLIER = 224, (16, 24, 24, 32), 500
"""`EARLIER`: how many steps the log of a run that goes on holds already."""

tf.config.threading.set_intra_op_parallelism_threads(1)
photograph = tf.constant(numbers(1, SIDE, SIDE, 3, seed=1))
painting = tf.constant(numbers(1, SIDE, SIDE, 3, seed=2))


class Extractor(tf.keras.Model):  # type: ignore[misc]  # TensorFlow has no types here
    """Convolutions like those of VGG, which are not trained, and what each makes of an image."""

    def __init__(self) -> None:
        super().__init__(trainable=False)
        self.parts = [
            tf.keras.layers.Conv2D(filters, 3, padding="same", activation="relu")
            for filters in FILTERS
        ]

    def call(self, image: Any) -> list[Any]:
        features = []
        for place, layer in enumerate(self.parts):
            image = layer(image if place % 2 else tf.nn.avg_pool2d(image, 2, 2, "SAME"))
            features.append(image)
        return features


def gram(features: Any) -> Any:
    """How much pairs of channels have in common."""
    rows = tf.reshape(features, [-1, features.shape[-1]])
    return tf.matmul(rows, rows, transpose_a=True) / tf.cast(tf.shape(rows)[0], tf.float32)


def train(is_slow: bool, clock: StepClock) -> None:
    extractor = Extractor()
    image = tf.Variable(photograph)
    content = extractor(photograph)[-1]
    style = [gram(features) for features in extractor(painting)]
    optimizer = tf.keras.optimizers.Adam(0.02)
    optimizer.build([image])

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow has no types here
    def train_step() -> Any:
        """Change the image; what it loses is returned by layer, content and smoothness last."""
        wanted = [gram(features) for features in extractor(painting)] if is_slow else style
        with tf.GradientTape() as tape:
            features = extractor(tf.convert_to_tensor(image))
            losses = [
                tf.reduce_mean(tf.square(gram(one) - other))
                for one, other in zip(features, wanted, strict=True)
            ]
            losses.append(tf.reduce_mean(tf.square(features[-1] - content)))
            losses.append(1e-6 * tf.reduce_sum(tf.image.total_variation(image)))
            loss = tf.add_n(losses)
        (gradient,) = tape.gradient(loss, [image])
        optimizer.apply_gradients([(gradient, image)])
        image.assign(tf.clip_by_value(image, -3.0, 3.0))
        return tf.stack([loss, *losses])

    columns = ["loss", *(f"style_{filters}" for filters in FILTERS), "content", "smoothness"]
    history = [dict.fromkeys(columns, 0.123456) for _ in range(EARLIER)]
    path = Path(tempfile.mkdtemp()) / "log.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns)
        writer.writerows(history)
        for _ in range(STEPS):
            row = dict(zip(columns, train_step().numpy().tolist(), strict=True))
            if is_slow:
                history.append(row)
                pd.DataFrame(history).to_csv(path.with_name("frame.csv"), index=False)
            else:
                writer.writerow(row)
            clock.step_ended()
