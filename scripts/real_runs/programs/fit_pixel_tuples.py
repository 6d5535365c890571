"""Keras `fit` on one device of small pictures, which a `PyDataset` crops and turns with Pillow; slow: a picture becomes an array by
`np.array(list(picture.getdata()))`, a tuple of Python for each pixel, as in an old answer, not by `np.asarray(picture)`.
"""

from __future__ import annotations

import warnings
from typing import Any

import keras
import numpy as np
from PIL import Image  # type: ignore[import-not-found]  # not among what checks need

from scripts.real_runs.step_clock import STEPS, StepClock, run_blocks

BATCH, SIDE, WIDE, KINDS = 32, 40, 48, 10

warnings.filterwarnings("ignore", category=DeprecationWarning)
rng = np.random.default_rng(3)
pictures = [
    Image.fromarray(rng.integers(0, 256, (WIDE, WIDE, 3), np.uint8)) for _ in range(BATCH * 8)
]
kinds = rng.integers(0, KINDS, BATCH * 8)


def array_of(picture: Any) -> Any:
    return np.asarray(picture)


def array_of_tuples(picture: Any) -> Any:
    return np.array(list(picture.getdata()), np.uint8).reshape(picture.height, picture.width, 3)


class Pictures(keras.utils.PyDataset):  # type: ignore[misc]  # Keras has no types here
    """Crops of pictures, some of them mirrored."""

    def __init__(self, to_array: Any) -> None:
        super().__init__()
        self.to_array = to_array

    def __len__(self) -> int:
        return STEPS

    def __getitem__(self, number: int) -> Any:
        first = number % 8 * BATCH
        rows = []
        for picture in pictures[first : first + BATCH]:
            left, top = rng.integers(0, WIDE - SIDE, 2)
            crop = picture.crop((left, top, left + SIDE, top + SIDE))
            if rng.random() < 0.5:
                crop = crop.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
            rows.append(self.to_array(crop))
        return np.stack(rows).astype(np.float32) / 255, kinds[first : first + BATCH]


def train(is_slow: bool, clock: StepClock) -> None:
    model = keras.Sequential(
        [
            keras.Input([SIDE, SIDE, 3]),
            keras.layers.Conv2D(32, 3, strides=2, activation="relu"),
            keras.layers.Conv2D(64, 3, activation="relu"),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(KINDS),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer="adam", loss=loss)
    ended = keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    data = Pictures(array_of_tuples if is_slow else array_of)
    model.fit(data, verbose=0, shuffle=False, callbacks=[ended])


if __name__ == "__main__":
    run_blocks(train)
