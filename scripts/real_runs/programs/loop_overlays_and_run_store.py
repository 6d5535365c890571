"""Segments of slides on two replicas; slow: pictures for a log are drawn in each step, though every hundredth writes them, and each metric is appended to a file of its own, after the file on the run has been read."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock, run_blocks
from scripts.real_runs.training import mirrored, numbers, step_of

BATCH, SIDE, CHANNELS, LARGE, METRICS, EVERY = 8, 32, 24, 144, 48, 100

strategy = mirrored(2)
slides = tf.constant(numbers(BATCH * 8, SIDE, SIDE, 3))


class RunStore:
    """Keeps what was measured in a run: a folder with a file on the run, and one for each metric."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        tags = {f"tag_{number}": "x" * 20 for number in range(30)}
        text = json.dumps({"status": "RUNNING", "stage": "active", "tags": tags})
        (self.folder / "meta.json").write_text(text)
        (self.folder / "metrics").mkdir()

    def log_metric(self, name: str, value: float, step: int) -> None:
        if json.loads((self.folder / "meta.json").read_text())["stage"] != "active":
            raise RuntimeError("the run has been deleted")
        with (self.folder / "metrics" / name).open("a") as lines:
            lines.write(f"{step} {value}\n")

    def log_all(self, rows: list[dict[str, float]]) -> None:
        (self.folder / "metrics" / "all").write_text(json.dumps(rows))


class Segments(tf.keras.Model):  # type: ignore[misc]  # TensorFlow has no types here
    """Tells for each pixel how bright it is, and now and then draws that over the slide."""

    def __init__(self, folder: Path, is_slow: bool) -> None:
        super().__init__()
        self.folder, self.is_slow = str(folder), is_slow
        same = {"padding": "same", "activation": "relu"}
        self.body = tf.keras.Sequential(
            [tf.keras.layers.Conv2D(CHANNELS, 5, **same) for _ in range(2)]
        )
        self.body.build([None, SIDE, SIDE, 3])
        self.head = tf.keras.layers.Conv2D(1, 1, activation="sigmoid")
        self.head.build([None, SIDE, SIDE, CHANNELS])

    def call(self, batch: Any) -> Any:
        return self.head(self.body(batch))

    def overlays(self, batch: Any, bright: Any) -> Any:
        rough = tf.image.resize(batch, [LARGE, LARGE], "bicubic")
        mask = tf.image.resize(bright, [LARGE, LARGE], "bicubic")
        return tf.image.convert_image_dtype(0.5 * rough + 0.5 * mask, tf.uint8, saturate=True)

    def written(self, pictures: Any) -> Any:
        path = tf.strings.join([self.folder, "/", tf.strings.as_string(tf.random.uniform([]))])
        with tf.control_dependencies([tf.io.write_file(path, tf.io.encode_png(pictures[0]))]):
            return tf.constant(True)

    def draw(self, batch: Any, bright: Any, step: Any) -> None:
        is_due = tf.equal(step % EVERY, EVERY - 1)
        if self.is_slow:
            pictures = self.overlays(batch, bright)
            tf.cond(is_due, lambda: self.written(pictures), lambda: False)
        else:
            tf.cond(is_due, lambda: self.written(self.overlays(batch, bright)), lambda: False)


def loss_of(model: Any, batch: Any) -> Any:
    slide, step = batch
    bright = model(slide)
    model.draw(slide, bright, step[0])
    return tf.reduce_mean(tf.square(bright - tf.reduce_mean(slide, axis=3, keepdims=True)))


def train(is_slow: bool, clock: StepClock) -> None:
    store, measured = RunStore(), []
    with strategy.scope():
        model = Segments(store.folder, is_slow)
        optimizer = tf.keras.optimizers.SGD(1e-3)
        optimizer.build(model.trainable_variables)
    train_step = step_of(strategy, model, optimizer, loss_of)
    batches = tf.data.Dataset.from_tensor_slices(slides).batch(2 * BATCH).cache().repeat()
    steps = tf.data.Dataset.counter().map(lambda step: tf.repeat(step, 2 * BATCH))
    dataset = tf.data.Dataset.zip((batches, steps)).prefetch(2)
    source = iter(strategy.experimental_distribute_dataset(dataset))
    for step in range(STEPS):
        loss = float(train_step(next(source)))
        metrics = {f"loss_{number}": loss / (number + 1) for number in range(METRICS)}
        if is_slow:
            for name, value in metrics.items():
                store.log_metric(name, value, step)
        else:
            measured.append(metrics)
        clock.step_ended()
    store.log_all(measured)


if __name__ == "__main__":
    # The first run of a process takes longer, and the first that is recorded, too.
    with tf.profiler.experimental.Profile(tempfile.mkdtemp()):
        train(False, StepClock())
    run_blocks(train)
