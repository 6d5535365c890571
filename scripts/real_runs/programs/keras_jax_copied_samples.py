"""Boxes of pictures are learnt from samples in Python; slow: each transform of a sample begins with a deep copy of it."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from typing import Any

os.environ["KERAS_BACKEND"] = "jax"

import keras
import numpy as np

from scripts.real_runs.jax_training import numbers
from scripts.real_runs.step_clock import STEPS, StepClock

SAMPLES, BATCH, SIDE, BOXES = 64, 16, 32, 30


def samples_of() -> list[dict[str, Any]]:
    pictures, places = numbers(SAMPLES, SIDE, SIDE, 3), abs(numbers(SAMPLES, BOXES, 4, seed=2))
    return [
        {
            "picture": picture,
            "name": f"pictures/{number}.png",
            "boxes": [
                {"box": box, "name": f"thing {place}", "is_crowd": False, "area": box[2] * box[3]}
                for place, box in enumerate(boxes.tolist())
            ],
        }
        for number, (picture, boxes) in enumerate(zip(pictures, places, strict=True))
    ]


Sample = dict[str, Any]


def flipped(sample: Sample) -> Sample:
    boxes = [
        {**b, "box": [SIDE - b["box"][0] - b["box"][2], *b["box"][1:]]} for b in sample["boxes"]
    ]
    return {**sample, "picture": sample["picture"][:, ::-1], "boxes": boxes}


def brightened(sample: Sample) -> Sample:
    return {**sample, "picture": sample["picture"] * 1.1}


def without_small(sample: Sample) -> Sample:
    return {**sample, "boxes": [b for b in sample["boxes"] if b["area"] >= 0.0]}


def scaled(sample: Sample) -> Sample:
    boxes = [{**b, "box": [side / SIDE for side in b["box"]]} for b in sample["boxes"]]
    return {**sample, "boxes": boxes}


TRANSFORMS: list[Callable[[Sample], Sample]] = [flipped, brightened, without_small, scaled]


class Boxes(keras.utils.PyDataset):  # type: ignore[misc]  # Keras has no types here
    """Batches of pictures and their boxes."""

    def __init__(self, samples: list[Sample], *, is_copied: bool) -> None:
        super().__init__()
        self._samples, self._is_copied = samples, is_copied

    def __len__(self) -> int:
        return STEPS

    def sample(self, number: int) -> Sample:
        sample = self._samples[number % SAMPLES]
        for transform in TRANSFORMS:
            if self._is_copied:
                # The samples are kept for the next epoch.
                sample = copy.deepcopy(sample)
            sample = transform(sample)
        return sample

    def __getitem__(self, batch: int) -> tuple[Any, Any]:
        chosen = [self.sample(batch * BATCH + place) for place in range(BATCH)]
        boxes = [[box["box"] for box in sample["boxes"]] for sample in chosen]
        return np.stack([s["picture"] for s in chosen]), np.asarray(boxes, np.float32)


def train(is_slow: bool, clock: StepClock) -> None:
    network = keras.Sequential(
        [
            keras.layers.Conv2D(32, 3, 2, activation="relu"),
            keras.layers.Conv2D(64, 3, activation="relu"),
            keras.layers.Conv2D(64, 3, 2, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dense(BOXES * 4),
            keras.layers.Reshape([BOXES, 4]),
        ]
    )
    network.compile("adam", "mse")
    network.fit(
        Boxes(samples_of(), is_copied=is_slow),
        shuffle=False,
        verbose=0,
        callbacks=[keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)],
    )
