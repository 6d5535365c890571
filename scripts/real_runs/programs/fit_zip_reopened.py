"""Pictures come from a zip file; slow: the file is opened again for each picture."""

from __future__ import annotations

import io
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock, run_blocks
from scripts.real_runs.training import numbers

MEMBERS, BATCH, SIDE, NAMES = 250, 24, 32, 10

tf.config.threading.set_intra_op_parallelism_threads(1)
folder = tempfile.TemporaryDirectory()
archive_path = Path(folder.name) / "pictures.zip"


def write_archive() -> None:
    pictures = np.clip(numbers(MEMBERS, SIDE, SIDE, 3) * 40 + 128, 0, 255).astype(np.uint8)
    with zipfile.ZipFile(archive_path, "w") as archive:
        for number, picture in enumerate(pictures):
            content = io.BytesIO()
            np.save(content, picture)
            archive.writestr(f"pictures/{number:06d}.npy", content.getvalue())


class ReopenedPictures(tf.keras.utils.PyDataset):  # type: ignore[misc]  # Keras has no types here
    """Batches from an archive which is opened where a picture is needed."""

    def __len__(self) -> int:
        return STEPS

    def picture(self, number: int) -> Any:
        with zipfile.ZipFile(archive_path) as archive:
            return np.load(io.BytesIO(archive.read(f"pictures/{number:06d}.npy")))

    def __getitem__(self, batch: int) -> tuple[Any, Any]:
        chosen = [(batch * BATCH + place) * 7 % MEMBERS for place in range(BATCH)]
        pictures = np.stack([self.picture(number) for number in chosen])
        return pictures.astype(np.float32) / 255, np.asarray(chosen) % NAMES


class OpenPictures(ReopenedPictures):
    """Batches from an archive which stays open."""

    def __init__(self) -> None:
        super().__init__()
        self._archive = zipfile.ZipFile(archive_path)

    def picture(self, number: int) -> Any:
        return np.load(io.BytesIO(self._archive.read(f"pictures/{number:06d}.npy")))


def train(is_slow: bool, clock: StepClock) -> None:
    network = tf.keras.Sequential(
        [
            tf.keras.layers.Conv2D(32, 3, activation="relu"),
            tf.keras.layers.Conv2D(48, 3, 2, activation="relu"),
            tf.keras.layers.Conv2D(64, 3, activation="relu"),
            tf.keras.layers.GlobalAveragePooling2D(),
            tf.keras.layers.Dense(NAMES),
        ]
    )
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    network.compile("adam", loss)
    network.fit(
        ReopenedPictures() if is_slow else OpenPictures(),
        shuffle=False,
        verbose=0,
        callbacks=[tf.keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)],
    )


write_archive()
if __name__ == "__main__":
    run_blocks(train)
